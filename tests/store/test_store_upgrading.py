"""Upgrades from every earlier schema, with a backup; and their failures."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from alembic import command
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData, create_engine, insert, select, text
from stored_values import ran, record

from mirage.domain.errors import StoreUnavailable
from mirage.store import schema as schemas
from mirage.store.backup import NoBackup
from mirage.store.database import Database
from mirage.store.migrations.versions import jobs as second_step
from mirage.store.opening import open_store
from mirage.store.schema import inspect_store, no_schema, upgrade_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from mirage.domain.chain import ChainRecord

FROZEN = Path(__file__).with_name("frozen")
EARLIER = no_schema().steps[:-1]
POSTGRES = pytest.mark.xdist_group("postgres")
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")


def of_then(found: ChainRecord) -> ChainRecord:
    """With ``requeue`` as the first versions had it by default; a chain keeps what its links had."""
    request = replace(found.chain.request, requeue=True)
    return replace(found, chain=replace(found.chain, request=request))


CHAINS = {
    "svc": of_then(record().with_link(ran(1, 100, 200)).with_link(ran(2, 230, 330)).with_link(ran(3, 300, 400))),
    "other": of_then(record("other", links=2, reason="it's \N{SNOWMAN}")),
}
"""The content that ``freeze_schema.py`` has put into each."""


def thaw(revision: str, url: str) -> str:
    """A database as that version left it; returns ``url``."""
    script = (FROZEN / f"{revision}.sql").read_text()
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script)
        return url
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script)
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        connection.row_factory = sqlite3.Row
        rows = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in tables}
    database = Database.at(url, 5.0)
    database.write(lambda target: _migrate_and_fill(target, revision, rows))
    database.close()
    return url


def _migrate_and_fill(connection: Connection, revision: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    config = schemas._config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    there = MetaData()
    there.reflect(connection)
    for table in there.sorted_tables:
        if table.name != "alembic_version" and rows.get(table.name):
            connection.execute(insert(table), rows[table.name])
    for table, column in (("chains", "sequence"), ("journal", "id"), ("audit", "id")):
        counter = f"pg_get_serial_sequence('{table}', '{column}')"
        connection.execute(text(f"SELECT setval({counter}, (SELECT max({column}) FROM {table}))"))


def everything_is_there(url: str) -> None:
    store = open_store(url)
    loaded = [of_then(found) for found in store.chains.load() if found.chain.name != "new"]
    assert {found.chain.name: found for found in loaded} == CHAINS
    assert [(each.outcome.interruption, each.outcome.overlap) for each in store.outcomes.read()] == [
        (30, 0),
        (0, 30),
    ]
    assert [line.entry.text for line in store.journal.read(limit=9)] == ["nothing", "link 3"]
    assert [line.entry.action for line in store.audit.read()] == ["pause"]
    assert [snapshot.users for snapshot in store.snapshots.read(0, 10)] == [("alice",)]
    waits = store.waits.recent_waits(9, "a100", "none", "normal")
    assert waits.wait.tolist() == [20, 40]
    assert {*waits.traits.account.decode(), *waits.traits.qos.decode(), *waits.traits.gres.decode()} == {""}
    store.chains.save(record("new"))
    store.close()


def revision_of(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        found: str = connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]
        return found


def content(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return list(connection.iterdump())


def old_store(folder: Path, revision: str = "0001") -> tuple[str, Path]:
    file = folder / "mirage.db"
    return thaw(revision, f"sqlite:///{file}"), file


def test_every_earlier_schema_is_kept_here() -> None:
    assert {file.stem for file in FROZEN.glob("*.sql")} >= set(EARLIER), "see freeze_schema.py"


@pytest.mark.parametrize("revision", EARLIER)
def test_the_daemon_upgrades_a_file_and_keeps_what_was_there(revision: str, tmp_path: Path) -> None:
    url, file = old_store(tmp_path, revision)
    before = content(file)
    everything_is_there(url)
    assert revision_of(file) == no_schema().wanted
    [copy] = tmp_path.glob(f"mirage.db.backup-{revision}-*Z")
    assert content(copy) == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    everything_is_there(url)
    assert len(list(tmp_path.glob("*backup*"))) == 1, "once"


@POSTGRES
@pytest.mark.parametrize("revision", EARLIER)
def test_a_server_is_dumped_first(revision: str, new_url: Callable[[str], str], tmp_path: Path) -> None:
    url = thaw(revision, new_url("postgres"))
    done = upgrade_store(url, tmp_path)
    assert (done.before, done.after) == (revision, no_schema().wanted)
    assert done.backup is not None
    assert done.backup.parent == tmp_path
    assert stat.S_IMODE(done.backup.stat().st_mode) == 0o600
    everything_is_there(url)
    restored = new_url("postgres")
    argv = ["pg_restore", "--no-owner", f"--dbname={restored}", str(done.backup)]
    subprocess.run(argv, check=True)
    assert inspect_store(restored).found == revision
    assert upgrade_store(restored, tmp_path, keep=False).backup is None
    everything_is_there(restored)


@POSTGRES
def test_without_pg_dump_nothing_is_changed(
    new_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = thaw("0001", new_url("postgres"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBackup, match=r"pg_dump is not installed .*postgresql-client.*--no-backup"):
        upgrade_store(url, tmp_path)
    with pytest.raises(NoBackup, match="run: mirage db upgrade"):
        open_store(url)
    assert inspect_store(url).found == "0001"
    assert list(tmp_path.iterdir()) == []
    assert upgrade_store(url, tmp_path, keep=False).before == "0001"


@POSTGRES
def test_a_password_is_not_among_the_arguments(
    new_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments are there for every user of the machine to read."""
    url = thaw("0001", new_url("postgres")).replace("mirage@", "mirage:s3cret@")
    noted = tmp_path / "noted"
    (tmp_path / "pg_dump").write_text(f'#!/bin/sh\necho "$@" >{noted}; echo "$PGPASSWORD" >>{noted}; exit 1\n')
    (tmp_path / "pg_dump").chmod(0o755)
    (tmp_path / "pg_restore").symlink_to("pg_dump")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(NoBackup, match="pg_dump: exit status 1"):
        upgrade_store(url, tmp_path)
    arguments, password = noted.read_text().splitlines()
    assert "s3cret" not in arguments
    assert password == "s3cret"


def test_an_empty_store_needs_no_copy(url: str, tmp_path: Path) -> None:
    assert inspect_store(url).found is None
    done = upgrade_store(url, tmp_path)
    assert (done.before, done.after, done.backup) == (None, no_schema().wanted, None)
    assert upgrade_store(url, tmp_path).before == no_schema().wanted


def test_to_look_makes_nothing(tmp_path: Path) -> None:
    assert inspect_store(f"sqlite:///{tmp_path}/there/mirage.db").found is None
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys, signal
from pathlib import Path
from mirage.store.schema import upgrade_store
import {module} as step
before = step.{name}
def killed(*arguments):
    {first}
    os.kill(os.getpid(), signal.SIGKILL)
step.{name} = killed
upgrade_store(sys.argv[1], Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("module", "name", "first"),
    [
        # As soon as the copy is a file, but not all of it; as the last step is done, but not committed.
        ("mirage.store.backup", "_copy_file", "arguments[1].write_bytes(b'half')"),
        ("mirage.store.schema", "_run_steps", "before(*arguments)"),
    ],
)
def test_killed_at_any_point_the_store_is_whole(module: str, name: str, first: str, tmp_path: Path) -> None:
    url, file = old_store(tmp_path)
    before = content(file)
    program = KILLED.format(module=module, name=name, first=first)
    ended = subprocess.run([sys.executable, "-c", program, url, str(tmp_path)], check=False)
    assert ended.returncode == -9
    assert content(file) == before
    everything_is_there(url)
    assert not list(tmp_path.glob(".*unfinished*")), "what the killed one left is used up"


def test_a_step_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, file = old_store(tmp_path)
    before, step = content(file), second_step.upgrade

    def fails() -> None:
        step()
        raise RuntimeError("a bug in a step")

    monkeypatch.setattr("mirage.store.schema._run_steps", _with_step(fails))
    with pytest.raises(RuntimeError, match="a bug"):
        upgrade_store(url, tmp_path)
    assert content(file) == before
    assert not list(tmp_path.glob("*backup*")), "or a daemon that is started repeatedly would fill the disk"
    monkeypatch.undo()
    everything_is_there(url)


def _with_step(fails: Callable[[], None]) -> Callable[..., None]:
    """The upgrade with the second step's function in a separate context."""
    from alembic.operations import Operations

    def run_steps(connection: Connection) -> None:
        with Operations.context(MigrationContext.configure(connection)):
            fails()

    return run_steps


@ROOT
def test_a_full_disk_calls_it_off(tmp_path: Path) -> None:
    from test_store_faults import mounted

    with mounted(tmp_path / "small", "1m"):
        url, file = old_store(tmp_path / "small")
        before = content(file)
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "small" / "filler").write_bytes(b"x" * (2 << 20))
        with pytest.raises(StoreUnavailable, match=r"no backup could be made at .*full|the disk is full"):
            upgrade_store(url, None)
        (tmp_path / "small" / "filler").unlink()
        assert content(file) == before
        assert not list(file.parent.glob("*backup*"))
        everything_is_there(url)


def test_a_damaged_file_is_not_taken_for_a_copy(tmp_path: Path) -> None:
    url, file = old_store(tmp_path)
    engine = create_engine(url)
    with engine.connect() as connection:
        page = connection.exec_driver_sql(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'ix_journal_time'"
        ).scalar()
        assert connection.execute(select(1)).scalar() == 1
    engine.dispose()
    with file.open("r+b") as raw:
        raw.seek((int(page or 0) - 1) * 4096 + 8)
        raw.write(b"\xff" * 64)
    with pytest.raises(NoBackup, match=r"damaged|malformed"):
        upgrade_store(url, tmp_path)
    assert not list(tmp_path.glob("*.backup-*"))
    assert revision_of(file) == "0001"


def test_while_it_is_copied_others_wait_and_one_alone_upgrades(tmp_path: Path) -> None:
    url, _file = old_store(tmp_path)
    program = "import sys; from mirage.store.opening import open_store; open_store(sys.argv[1], 30).close()"
    opening = [subprocess.Popen([sys.executable, "-c", program, url]) for _ in range(3)]
    assert [process.wait() for process in opening] == [0, 0, 0]
    assert len(list(tmp_path.glob("*.backup-*"))) == 1
    everything_is_there(url)

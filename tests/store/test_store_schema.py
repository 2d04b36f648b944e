"""Migrations: from nothing, in agreement with the tables, rejected when newer; and where a database may lie."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text
from stored_values import record

from mirage import ownplaces
from mirage.domain.errors import ConfigError
from mirage.ownplaces import file_system
from mirage.store.database import Database
from mirage.store.location import locate
from mirage.store.opening import open_store
from mirage.store.schema import no_schema
from mirage.store.tables import metadata

if TYPE_CHECKING:
    from mirage.store.opening import Store


def test_migrations_from_nothing_make_exactly_the_tables(store: Store) -> None:
    def differences(connection: object) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})  # type: ignore[arg-type]
        return list(compare_metadata(context, metadata))

    assert store.database.read(differences) == []
    assert set(store.database.read(lambda c: inspect(c).get_table_names())) == {
        *metadata.tables,
        "alembic_version",
    }


def test_opening_again_changes_nothing(url: str) -> None:
    first = open_store(url)
    first.chains.save(record())
    first.close()
    again = open_store(url)
    assert again.chains.load() == (record(),)
    again.close()


def test_a_newer_schema_is_refused_and_left_alone(url: str) -> None:
    store = open_store(url)
    store.chains.save(record())
    store.database.write(lambda c: c.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    store.close()
    with pytest.raises(ConfigError, match=r"schema is 9999, which this version does not know .*newer Mirage"):
        open_store(url)
    ours = text("UPDATE alembic_version SET version_num = :ours").bindparams(ours=no_schema().wanted)
    with closing(Database.at(url, 5.0)) as database:
        database.write(lambda c: c.execute(ours))
    again = open_store(url)
    assert again.chains.load() == (record(),)
    again.close()


def test_several_processes_may_open_an_empty_database_at_once(url: str) -> None:
    program = (
        "import sys; from mirage.store.opening import open_store; open_store(sys.argv[1]).close(); print('ok')"
    )
    opening = [
        subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    answers = [process.communicate() for process in opening]
    assert [out for out, _ in answers] == [b"ok\n"] * 3, answers


# Where it lies


def test_directories_are_made_and_strangers_kept_out(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/var/lib/mirage.db")
    store.chains.save(record())
    folder = tmp_path / "var" / "lib"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"lib": 0o700, "mirage.db": 0o600, "mirage.db-wal": 0o600, "mirage.db-shm": 0o600}
    store.close()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("mirage.db", "not a database URL, such as sqlite:////var"),
        ("postgresql://host:notaport/db", "not a database URL"),
        ("mysql://localhost/mirage", "mysql is not supported"),
        ("postgresql+asyncpg://localhost/mirage", "not supported"),
        ("sqlite://", "a plain file"),
        ("sqlite:///:memory:", "a plain file"),
        ("sqlite:////tmp/x.db?mode=ro", "a plain file"),
    ],
)
def test_urls_that_are_refused(bad: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        locate(bad)
    assert caught.value.where == "store"


def test_a_password_is_never_shown() -> None:
    assert "secret" not in locate("postgresql://mirage:secret@db/mirage").shown
    assert "db/mirage" in locate("postgresql://mirage:secret@db/mirage").shown


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:///here.db").close()
    assert (tmp_path / "here.db").exists()


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:35 / /home rw,relatime shared:20 master:3 - nfs4 server:/home rw,vers=4.2
41 40 254:1 / /home/alice/local rw,relatime - xfs /dev/vdb rw
42 22 0:40 / /mnt/with\\040blank rw - lustre 10.0.0.1@tcp:/scratch rw
43 22 0:41 / /homestead rw - btrfs /dev/vdc rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/var/lib/mirage", "ext4"),
        ("/home/alice", "nfs4"),
        ("/home", "nfs4"),
        ("/home/alice/local/mirage", "xfs"),
        ("/homestead/x", "btrfs"),
        ("/mnt/with blank/mirage", "lustre"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(directory: str, kind: str) -> None:
    assert file_system(Path(directory), MOUNTS) == kind


def test_without_a_mount_table_nothing_is_refused() -> None:
    assert file_system(Path("/home/alice"), "") == ""


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {tmp_path.resolve()} rw - nfs4 s:/x rw\n")
    monkeypatch.setattr(ownplaces, "_MOUNTS", table)
    with pytest.raises(ConfigError, match=r"network file system \(nfs4\); .*local disk.*PostgreSQL"):
        open_store(f"sqlite:///{tmp_path}/mirage.db")
    assert not (tmp_path / "mirage.db").exists()


def test_this_machines_mount_table_can_be_read() -> None:
    kinds = Path("/proc/filesystems").read_text(encoding="ascii").split()
    found = file_system(Path(os.sep), Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    assert found.split(".")[0] in kinds

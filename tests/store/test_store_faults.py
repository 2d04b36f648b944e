"""Failures of databases: one error with place, cause and remedy; nothing half-written."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from small_disks import mounted
from sqlalchemy import event
from stored_values import ran, record, reopened

from mirage.domain.chain import ChainId
from mirage.domain.errors import StoreUnavailable
from mirage.domain.journal import Entry, EntryKind
from mirage.store.opening import open_store
from mirage.store.schema import Upgrade, inspect_store, upgrade_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from postgres_server import PostgresServer

    from mirage.store.opening import Store

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
POSTGRES = pytest.mark.xdist_group("postgres")
BIG = record(links=1, reason="x" * 200_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mirage.db"


@pytest.fixture
def sqlite(file: Path) -> Iterator[Store]:
    """A store with one chain, which does not wait long for others."""
    store = open_store(f"sqlite:///{file}", patience=0.05)
    store.chains.save(record())
    yield store
    store.database.close()


def unharmed(store: Store) -> None:
    """The chain is as it was saved last, in memory and on disk, and can be saved again."""
    assert store.chains.load() == reopened(store).load() == (record(),)
    store.chains.save(record(failures=1))
    assert reopened(store).load() == (record(failures=1),)


@contextlib.contextmanager
def unprivileged(*paths: Path) -> Iterator[None]:
    """Root may write anywhere, so become another user, who owns the paths."""
    if os.geteuid() != 0:
        yield
        return
    for path in paths:
        os.chown(path, 65_534, 65_534)
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_locked_for_longer_than_one_waits(sqlite: Store, file: Path) -> None:
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"mirage\.db: another process keeps the database locked .*; end"):
        sqlite.chains.save(record(failures=9))
    assert sqlite.chains.load() == (record(),), "reading continues"
    other.execute("ROLLBACK")
    other.close()
    unharmed(sqlite)


def test_a_writer_waits_its_turn(file: Path) -> None:
    """With timeout, two processes write without a failure: locks are taken when a transaction begins."""
    store = open_store(f"sqlite:///{file}", patience=30)
    program = (
        "import sqlite3, sys\n"
        "other = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n"
        "for n in range(200):\n"
        "    other.execute('BEGIN IMMEDIATE')\n"
        "    other.execute('SELECT count(*) FROM journal').fetchone()\n"
        "    other.execute('COMMIT')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, file]) as other:
        for n in range(200):
            store.chains.save(record(failures=n))
    assert other.returncode == 0
    store.close()


def test_a_full_database(sqlite: Store) -> None:
    @event.listens_for(sqlite.database._engine, "connect")
    def limit(connection: sqlite3.Connection, entry: Any) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    sqlite.database.close()
    sqlite.journal.write(Entry(1, None, EntryKind.EVENT, "kept"))
    with pytest.raises(StoreUnavailable, match=r"the disk is full .*; free some space"):
        sqlite.chains.save(BIG)
    assert sqlite.journal.read() == ()
    assert sqlite.chains.load() == reopened(sqlite).load() == (record(),)
    event.remove(sqlite.database._engine, "connect", limit)
    sqlite.database.close()
    unharmed(sqlite)
    assert [line.entry.text for line in sqlite.journal.read()] == ["kept"]


@ROOT
def test_a_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "1m"):
        store = open_store(f"sqlite:///{tmp_path}/small/mirage.db")
        store.chains.save(record())
        filler = tmp_path / "small" / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(b"x" * (2 << 20))
        with pytest.raises(StoreUnavailable, match=r"(disk is full|disk failed) "):
            store.chains.save(BIG)
        assert store.chains.load() == (record(),)
        filler.unlink()
        unharmed(store)
        store.close()


@ROOT
def test_a_disk_that_became_read_only(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "4m"):
        url = f"sqlite:///{tmp_path}/disk/mirage.db"
        store = open_store(url)
        store.chains.save(record())
        store.close()
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "disk"], check=True)
        with pytest.raises(StoreUnavailable, match=r"mirage\.db: .*; .* its directory"):
            open_store(url).chains.save(record(failures=1))
        subprocess.run(["mount", "-o", "remount,rw", tmp_path / "disk"], check=True)
        again = open_store(url)
        unharmed(again)
        again.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that all users may look into; pytest's own are closed."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_file_that_was_moved_away_takes_nothing_until_it_is_back(sqlite: Store, file: Path) -> None:
    """Its connections would continue to write to a file that no process opens again."""
    file.rename(file.with_name("elsewhere"))
    with pytest.raises(StoreUnavailable, match="removed"):
        sqlite.chains.save(record(failures=1))
    with pytest.raises(StoreUnavailable, match="removed"):
        sqlite.database.read(lambda connection: None)
    assert not file.exists(), "no new one is made in its place"
    file.with_name("elsewhere").rename(file)
    unharmed(sqlite)


def test_a_file_that_was_replaced_takes_nothing(sqlite: Store, file: Path) -> None:
    shutil.copy(file, file.with_name("copy"))
    before = file.with_name("copy").read_bytes()
    file.with_name("copy").replace(file)
    with pytest.raises(StoreUnavailable, match="replaced"):
        sqlite.chains.save(record(failures=1))
    assert file.read_bytes() == before


def test_a_file_that_may_only_be_read(open_folder: Path) -> None:
    file = open_folder / "mirage.db"
    store = open_store(f"sqlite:///{file}")
    store.chains.save(record())
    store.close()
    file.chmod(0o444)
    with unprivileged(open_folder):
        readable = open_store(f"sqlite:///{file}")
        assert readable.chains.load() == (record(),)
        with pytest.raises(StoreUnavailable, match=r"cannot be written .*; give the file"):
            readable.chains.save(record(failures=1))
        assert readable.chains.load() == (record(),)
        readable.database.close()


def test_a_directory_that_is_not_ours(open_folder: Path) -> None:
    (open_folder / "closed").mkdir(mode=0o500)
    with (
        unprivileged(),
        pytest.raises(StoreUnavailable, match=r"mirage\.db: Permission denied .*; let"),
    ):
        open_store(f"sqlite:///{open_folder}/closed/mirage.db")


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"mirage\.db: Not a directory .*; let"):
        open_store(f"sqlite:///{tmp_path}/file/folder/mirage.db")


def test_a_file_that_is_no_database(file: Path) -> None:
    file.write_text("this is a text, and a long one at that; " * 100)
    with pytest.raises(StoreUnavailable, match=r"mirage\.db: this is not a database file .*; restore a backup"):
        open_store(f"sqlite:///{file}")
    assert file.read_text().startswith("this is a text"), "left as it was"


def _read_chains(url: str) -> None:
    """Damage may already be found while the database is opened."""
    store = open_store(url)
    try:
        store.chains.load()
    finally:
        store.close()


def test_a_damaged_file(file: Path) -> None:
    store = open_store(f"sqlite:///{file}")
    for n in range(200):
        store.chains.save(record(f"chain-{n}", links=3))
    store.close()
    data = bytearray(file.read_bytes())
    data[4096 * 3 :] = b"\xa5" * (len(data) - 4096 * 3)
    file.write_bytes(data)
    with pytest.raises(StoreUnavailable, match=r"mirage\.db: the database file is damaged .*; restore a backup"):
        _read_chains(f"sqlite:///{file}")


# PostgreSQL


@pytest.fixture
def remote(new_url: Callable[[str], str]) -> Iterator[Store]:
    store = open_store(new_url("postgres"), patience=0.2)
    store.chains.save(record())
    yield store
    store.database.close()


@POSTGRES
def test_a_server_restarted_under_us(remote: Store, postgres: PostgresServer) -> None:
    for n in range(2, 5):
        postgres.stop()
        postgres.start()
        remote.journal.write(Entry(n, ChainId("svc"), EntryKind.EVENT, "after a restart"))
        remote.chains.save(record(failures=n))
        assert reopened(remote).load() == (record(failures=n),)
    assert len(remote.journal.read()) == 3


@POSTGRES
def test_a_connection_cut_in_the_middle_is_tried_once_more(remote: Store, postgres: PostgresServer) -> None:
    """After the connection was found alive and before the transaction is over."""
    cuts: list[int] = []

    @event.listens_for(remote.database._engine, "before_cursor_execute")
    def cut(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("INSERT INTO links") and not cuts:
            cuts.append(connection.connection.driver_connection.info.backend_pid)
            with postgres.connection() as other:
                other.execute("SELECT pg_terminate_backend(%s)", cuts)

    remote.chains.save(record().with_link(ran(1, 100, 200)))
    assert len(cuts) == 1
    assert reopened(remote).load() == (record().with_link(ran(1, 100, 200)),)


@POSTGRES
def test_each_transaction_may_run_in_another_session(postgres: PostgresServer) -> None:
    """A daemon behind PgBouncer with ``pool_mode = transaction``; the bound on waits for locks holds there too."""
    postgres.new_database("pooled")
    with postgres.pooled("pooled") as url:
        store = open_store(url, patience=0.2)
        try:
            for held in range(2):
                with psycopg.connect(url) as other:
                    other.execute(
                        "SELECT 1"
                    )  # holds the session used last: the database object gets the other one
                    for n in range(10 * held + 1, 10 * held + 11):
                        store.journal.write(Entry(n, ChainId("svc"), EntryKind.EVENT, f"entry {n}"))
                        store.chains.save(record(failures=n))
            assert reopened(store).load() == (record(failures=20),)
            assert len(store.journal.read()) == 20
            with postgres.connection("pooled") as other, other.transaction():
                other.execute("LOCK TABLE chains")
                with pytest.raises(StoreUnavailable):
                    store.chains.save(record(failures=21))
        finally:
            store.database.close()


@POSTGRES
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_keep_every_text(encoding: str, postgres: PostgresServer) -> None:
    """A name that it lacks would be an error in the midst of a cycle."""
    name = f"mirage_{encoding.lower()}"
    with postgres.connection() as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    for opened in (open_store, inspect_store, upgraded):
        with pytest.raises(StoreUnavailable, match=f"{encoding}.*createdb -E UTF8"):
            opened(postgres.url(name))


def upgraded(url: str) -> Upgrade:
    return upgrade_store(url, None)


@POSTGRES
def test_a_server_that_is_down(remote: Store, postgres: PostgresServer) -> None:
    postgres.stop()
    try:
        with pytest.raises(StoreUnavailable, match=r"does not answer or closed .*; check that it runs"):
            remote.chains.save(record(failures=9))
        with pytest.raises(StoreUnavailable, match="does not answer"):
            remote.chains.load()
    finally:
        postgres.start()
    unharmed(remote)


@POSTGRES
def test_a_table_locked_by_another_session(remote: Store, postgres: PostgresServer) -> None:
    name = remote.database._engine.url.database
    assert name is not None
    with postgres.connection(name) as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE chains IN EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable, match=r"another session keeps a table locked .*; end that session"):
            remote.chains.save(record(failures=9))
        other.execute("ROLLBACK")
    unharmed(remote)


@POSTGRES
def test_a_standby(remote: Store, postgres: PostgresServer) -> None:
    name = remote.database._engine.url.database
    with postgres.connection() as admin:
        admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    remote.database.close()
    with pytest.raises(StoreUnavailable, match=r"the server is read-only .*; name the primary"):
        remote.chains.save(record(failures=9))
    with postgres.connection() as admin:
        admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    remote.database.close()
    unharmed(remote)


@POSTGRES
def test_no_such_database_and_no_such_server(postgres: PostgresServer) -> None:
    with pytest.raises(StoreUnavailable, match=r"there is no such database .*; create it: createdb"):
        open_store(postgres.url("missing"))
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/mirage: the server does not answer"):
        open_store("postgresql://mirage:secret@127.0.0.1:1/mirage")


@pytest.mark.parametrize("option", ["sslmod=require", "connect_timeout=soon"])
def test_an_option_that_postgresql_does_not_know_is_named(option: str) -> None:
    """Before anything is connected to."""
    pytest.importorskip("psycopg")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1.*cannot be used.*correct the options"):
        open_store(f"postgresql://mirage@127.0.0.1:1/mirage?{option}")

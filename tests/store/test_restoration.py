"""A restored backup is known for one, whatever restored it; and an original never is."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from stored_values import record
from test_store_upgrading import thaw

from mirage.control.leader_election import LeaderCandidate, LeaderElection, LeaseTerms
from mirage.domain.errors import StoreUnavailable
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.lease import Lease
from mirage.store.access import StoredToken
from mirage.store.backup import back_up
from mirage.store.leases import SqlLeases
from mirage.store.location import locate
from mirage.store.opening import Store, open_database, open_store
from mirage.store.restoration import Restoration, declare_restored, read_restoration
from mirage.store.schema import no_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAST = 5_000
POSTGRES = pytest.mark.xdist_group("postgres")


def token(name: str, owner: str = "alice") -> StoredToken:
    return StoredToken(name, owner, "", "read", b"x" * 32, 1, 0)


def fill(store: Store) -> None:
    store.chains.save(record(links=1))
    store.journal.write(Entry(LAST, None, EntryKind.EVENT, "the last one"))
    store.journal.flush()
    store.tokens.add(token("one"))
    store.tokens.add(token("two", "bob"))


def filled(url: str) -> str:
    store = open_store(url)
    fill(store)
    store.close()
    return url


def restore(backup: Path, url: str) -> None:
    """The procedure of docs/deploy.md."""
    location = locate(url)
    if location.directory is not None:
        for each in location.directory.iterdir():
            each.unlink()
        shutil.copyfile(backup, location.directory / "state.db")
        return
    file = location.file
    if file is None:
        argv = ["pg_restore", "--clean", "--if-exists", "--no-owner", "-d", url, str(backup)]
        subprocess.run(argv, check=True)
        return
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(backup, file)


def noted(url: str) -> Restoration | None:
    store = open_store(url)
    try:
        return store.restoration.load()
    finally:
        store.close()


def owners(url: str) -> list[str]:
    store = open_store(url)
    try:
        return [token.owner for token in store.tokens.load()]
    finally:
        store.close()


def test_restoration_of_an_original_is_never_noted(url: str, tmp_path: Path) -> None:
    filled(url)
    back_up(locate(url), tmp_path / "copy")
    assert read_restoration(url) is None
    assert noted(url) is None
    assert noted(url) is None
    assert owners(url) == ["alice", "bob"]


def test_restoration_of_a_backup_is_noted_until_cleared(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(url)
    back_up(locate(url), tmp_path / "copy")
    store = open_store(url)
    store.journal.write(Entry(2 * LAST, None, EntryKind.EVENT, "not in the backup"))
    store.close()
    restore(tmp_path / "copy", url)
    seen = read_restoration(url)
    assert seen is not None
    assert seen.since == LAST
    assert noted(url) == seen
    assert "event=database_restored" in caplog.text
    assert "tokens_revoked=2 owners=alice,bob" in caplog.text
    store = open_store(url)
    store.journal.write(Entry(3 * LAST, None, EntryKind.EVENT, "the daemon waits"))
    store.tokens.add(token("new"))
    store.close()
    assert noted(url) == seen, "a daemon that was killed before it was done begins again from the same time"
    assert owners(url) == ["alice"], "what was made since the restore counts"
    store = open_store(url)
    store.restoration.clear()
    store.close()
    assert noted(url) is None
    assert read_restoration(url) is None


def test_restoration_of_a_restored_database_is_noted_again(url: str, tmp_path: Path) -> None:
    filled(url)
    for name in ("first", "second"):
        back_up(locate(url), tmp_path / name)
        restore(tmp_path / name, url)
        found = noted(url)
        assert found is not None
        assert found.since == LAST
        store = open_store(url)
        store.restoration.clear()
        store.close()


def test_restoration_of_a_copy_made_before_the_note_keeps_the_note(url: str, tmp_path: Path) -> None:
    filled(url)
    declare_restored(url, since=LAST // 2)
    back_up(locate(url), tmp_path / "copy")
    restore(tmp_path / "copy", url)
    found = noted(url)
    assert found is not None
    assert found.since == LAST // 2, "the chains have not been compared since"


@pytest.mark.parametrize("revision", ["0001", no_schema().steps[-2]])
def test_restoration_of_an_older_schemas_copy_is_noted(revision: str, tmp_path: Path) -> None:
    url = thaw(revision, f"sqlite:///{tmp_path}/old.db")
    back_up(locate(url), tmp_path / "mirage.db")
    copied = f"sqlite:///{tmp_path}/mirage.db"
    assert read_restoration(copied) is not None
    found = noted(copied)
    assert found is not None
    assert found.copied > 0
    assert noted(url) is None


@POSTGRES
def test_restoration_into_another_database_is_noted(new_url: Callable[[str], str], tmp_path: Path) -> None:
    url, other = filled(new_url("postgres")), new_url("postgres")
    back_up(locate(url), tmp_path / "copy")
    subprocess.run(["pg_restore", "--no-owner", "-d", other, str(tmp_path / "copy")], check=True)
    assert noted(other) == Restoration(LAST, 0)
    assert noted(url) is None


def test_restoration_declared_keeps_tokens_where_asked(url: str) -> None:
    filled(url)
    note = declare_restored(url, keep_tokens=True, asks_accounting=False, since=LAST - 1)
    assert note.revoked == ()
    assert noted(url) == Restoration(LAST - 1, 0, asks_accounting=False)
    assert owners(url) == ["alice", "bob"]
    assert sorted(declare_restored(url).revoked) == ["alice", "bob"]
    assert owners(url) == []


@POSTGRES
def test_restore_under_an_open_store_ends_its_writing(new_url: Callable[[str], str], tmp_path: Path) -> None:
    url = filled(new_url("postgres"))
    store = open_store(url)
    office = open_database(url)
    leases = SqlLeases(office)
    candidate = LeaderCandidate("head-1", "head-1", LeaseTerms(9.0))
    campaign = LeaderElection(leases, candidate, clock=lambda: now)
    now = 0.0
    campaign.step()
    campaign.step()
    assert campaign.impediment(1) == ""
    back_up(locate(url), tmp_path / "copy")
    store.chains.save(record(links=2))
    restore(tmp_path / "copy", url)
    now = 3.0
    campaign.step()
    now = 7.0
    assert "was restored while it was open" in campaign.impediment(1)
    writes = (
        lambda: store.chains.save(record(links=3)),
        lambda: store.tokens.add(token("three")),
        lambda: leases.swap(leases.read(), Lease("head-2", "head-2", 2)),
    )
    for write in writes:
        with pytest.raises(StoreUnavailable, match="restored while it was open, nothing is stored"):
            write()
    store.database.close()
    office.close()
    assert noted(url) is not None, "the next daemon compares its chains with Slurm"


@POSTGRES
def test_tables_dropped_under_an_open_store_end_its_writing(new_url: Callable[[str], str]) -> None:
    store = open_store(filled(new_url("postgres")))
    store.database.write(lambda connection: connection.exec_driver_sql("DROP TABLE about"))
    with pytest.raises(StoreUnavailable, match="restored while it was open"):
        store.tokens.add(token("three"))
    store.database.close()

"""A database in a shared directory: terms, publications that fail, damage, size, copies of killed processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select
from stored_values import jobs, record
from test_store_leases import FIRST, SECOND, store_in_term

from mirage.domain.chain import ChainId
from mirage.domain.errors import ConfigError, LeadershipLost, StoreUnavailable
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.lease import VACANT
from mirage.store.database import Database
from mirage.store.leases import FileFence, open_leases
from mirage.store.location import check_room, locate
from mirage.store.opening import open_store
from mirage.store.private_copies import PrivateDirectory, shrink
from mirage.store.published_state import newest_state
from mirage.store.tables import journal, waits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.store.opening import Store


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
def address(directory: Path) -> str:
    return f"directory://{directory}"


@pytest.fixture
def leading(address: str) -> Iterator[Store]:
    assert open_leases(address).swap(VACANT, FIRST)
    store = store_in_term(address, FIRST)
    store.chains.save(record())
    yield store
    store.database.close()


def states(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.glob("state.[0-9]*"))


def test_new_leader_publishes_before_the_former_one_can(tmp_path: Path, address: str) -> None:
    """The former one still sees the lease as it was: the number that it would publish exists already."""
    leases, late = open_leases(address), open_leases(f"directory://{tmp_path}/late")
    for each in (leases, late):
        assert each.swap(VACANT, FIRST)
    former = open_store(address, condition=FileFence(late, FIRST.holder, FIRST.term))
    former.chains.save(record())
    assert leases.swap(FIRST, SECOND)
    former.chains.save(record(failures=1))
    following = store_in_term(address, SECOND)
    assert following.chains.load() == (record(failures=1),), "published before the new leader began"
    with pytest.raises(LeadershipLost, match="another process has stored a later state"):
        former.chains.save(record(failures=3))
    former.stand_by()
    assert former.chains.load() == following.chains.load() == (record(failures=1),)
    for store in (former, following):
        store.database.close()


def test_standby_reads_when_it_stands_by(leading: Store, address: str) -> None:
    standby = store_in_term(address)
    assert standby.chains.load() == (record(),)
    leading.chains.save(record(failures=1))
    standby.stand_by()
    assert standby.chains.load() == (record(failures=1),)
    for write in (lambda: standby.waits.add(jobs((1, 1, 5))), lambda: standby.chains.save(record())):
        with pytest.raises(LeadershipLost, match="head1 is the leader"):
            write()
    standby.database.close()


def test_standby_of_an_empty_directory_publishes_nothing(directory: Path, address: str) -> None:
    store_in_term(address).close()
    assert states(directory) == []


def test_failed_publication_stores_nothing_and_the_next_goes_on(leading: Store, directory: Path) -> None:
    before, blocked = newest_state(directory), directory / f"state.{int(states(directory)[-1][6:]) + 1}"
    blocked.mkdir()  # the name cannot be made, nor read as a file
    with pytest.raises(StoreUnavailable, match=f"{blocked}: "):
        leading.chains.save(record(failures=1))
    with pytest.raises(StoreUnavailable, match=f"{blocked}: "):
        leading.chains.save(record(failures=1))
    blocked.rmdir()
    assert newest_state(directory) == before
    leading.chains.forget()
    assert leading.chains.load() == (record(),)
    leading.chains.save(record(failures=2))
    leading.chains.forget()
    assert leading.chains.load() == (record(failures=2),)


def test_directory_removed_while_open_ends_the_writing(leading: Store, directory: Path) -> None:
    moved = directory.rename(directory.with_name("moved"))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=rf"{directory}: .*"):
            leading.chains.save(record(failures=1))
    directory.mkdir(0o700)
    with pytest.raises(StoreUnavailable, match=r"replaced by another file; nothing is stored"):
        leading.database.write(lambda connection: None)
    assert list(directory.iterdir()) == []
    directory.rmdir()
    moved.rename(directory)
    leading.chains.save(record(failures=2))


def test_damaged_state_is_reported_and_left_alone(leading: Store, directory: Path, address: str) -> None:
    newest = max(directory.glob("state.[0-9]*"), key=lambda file: int(file.name[6:]))
    newest.write_bytes(newest.read_bytes()[:-100])
    names = states(directory)
    for opened in (lambda: open_store(address), lambda: store_in_term(address, FIRST)):
        with pytest.raises(StoreUnavailable, match=f"{newest}: the file is damaged"):
            opened()
    assert states(directory) == names
    assert leading.database.where == str(directory)


def test_two_stores_without_a_lease_lose_no_transaction(address: str) -> None:
    """As two administration commands at a time: one does its transaction again on the other's state."""
    with closing(open_store(address).database) as one, closing(open_store(address).database) as other:
        row = {"link": 0, "kind": "action", "text": "", "time": 0}
        for n in range(6):
            (one, other)[n % 2].write(
                lambda connection, n=n: connection.execute(journal.insert(), row | {"time": n})
            )
        times = one.read(lambda connection: connection.execute(select(journal.c.time)).scalars().all())
    assert sorted(times) == list(range(6))


def test_shrink_keeps_chains_and_the_newest_history(address: str) -> None:
    with closing(open_store(address)) as store:
        store.chains.save(record(links=2))
        store.waits.add(jobs(*((n, n, n + 5) for n in range(1, 20_001))))
        store.journal.write(Entry(7, ChainId("svc"), EntryKind.ACTION, "kept"))
        store.journal.flush()
        assert store.database.shared is not None
        shrink(store.database.shared.copy, limit=1 << 20)
        left = store.database.read(lambda c: c.execute(select(waits.c.start)).scalars().all())
        assert 0 < len(left) < 10_000
        assert sorted(left) == list(range(20_006 - len(left), 20_006)), "the newest"
        store.chains.forget()
        assert store.chains.load() == (record(links=2),)
        assert [line.entry.text for line in store.journal.read()] == ["kept"]
        assert store.database.shared.copy.stat().st_size < 4 << 20


def test_private_directory_of_a_killed_process_is_removed() -> None:
    program = (
        "from mirage.store.private_copies import PrivateDirectory as P;"
        "import time; p = P(); print(p.path, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        own = PrivateDirectory()
        assert left.stat().st_mode & 0o777 == 0o700
        process.send_signal(signal.SIGKILL)
    PrivateDirectory().close()
    assert not left.exists()
    assert own.path.exists(), "of a process that runs"
    own.close()
    assert not own.path.exists()


def test_directory_url_is_checked(tmp_path: Path, directory: Path, address: str) -> None:
    assert locate(address).shown == str(directory)
    check_room(address)
    assert not directory.exists()
    for bad in ("directory://", "directory:///", "directory://host/path", "directory:///path?mode=ro"):
        with pytest.raises(ConfigError, match="absolute path, such as directory:///"):
            locate(bad)
    directory.mkdir(0o755)
    directory.chmod(0o755)
    for opened in (check_room, open_store, open_leases):
        with pytest.raises(StoreUnavailable, match=f"run: chmod 700 {directory}"):
            opened(address)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StoreUnavailable, match="symbolic link"):
        Database.at(f"directory://{tmp_path}/link", 1.0)

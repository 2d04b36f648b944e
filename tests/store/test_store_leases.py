"""The lease in each kind of database: atomic compare and swap, and fencing of its holder's writes."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete
from stored_values import ran, record

from mirage.bootstrap.leadership import writing_condition
from mirage.control.leader_election import Tenure
from mirage.domain.chain import ChainId
from mirage.domain.errors import LeadershipLost, StoreUnavailable
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.lease import VACANT, Lease
from mirage.store.leases import FileLeases, SqlLeases, fence, open_leases
from mirage.store.location import locate
from mirage.store.opening import open_database, open_store
from mirage.store.tables import leases as table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.ports import Leases
    from mirage.store.opening import Store


@contextlib.contextmanager
def leases_of(url: str) -> Iterator[Leases]:
    """As a daemon has them; any number at a time."""
    if locate(url).directory is not None:
        yield open_leases(url)
        return
    with contextlib.closing(open_database(url)) as database:
        yield SqlLeases(database)


def store_in_term(url: str, lease: Lease = VACANT) -> Store:
    """A store as the holder of the lease opens it, or as a standby does."""
    return open_store(url, condition=writing_condition(Tenure(lease.holder, lease.term, str, str), url))


FIRST, SECOND = Lease("id1", "head1", 1), Lease("id2", "head2", 2)


def test_nobody_has_it_at_first(url: str) -> None:
    with leases_of(url) as leases:
        assert leases.read() == VACANT


LEASES = st.builds(Lease, st.sampled_from(["", "a", "b"]), st.just("n"), st.integers(0, 2), st.integers(0, 1))


@given(swaps=st.lists(st.tuples(LEASES, LEASES), max_size=12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_swap_happens_where_the_old_lease_is_there_or_the_new_one_already(
    shared_store: Store, swaps: list[tuple[Lease, Lease]]
) -> None:
    shared_store.database.write(lambda connection: connection.execute(delete(table)))
    check_swaps(SqlLeases(shared_store.database), swaps)


@given(swaps=st.lists(st.tuples(LEASES, LEASES), max_size=30))
@settings(max_examples=60, deadline=None)
def test_a_swap_of_files_happens_where_it_would_in_a_database(swaps: list[tuple[Lease, Lease]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        check_swaps(FileLeases(Path(directory)), swaps)


def check_swaps(leases: Leases, swaps: list[tuple[Lease, Lease]]) -> None:
    there = VACANT
    for old, new in [(VACANT, Lease("a", "n", 1)), *swaps]:
        happens = _key(there) in (_key(old), _key(new))
        assert leases.swap(old, new) is happens
        there = new if happens else there
        assert leases.read() == there


def _key(lease: Lease) -> tuple[str, int, int]:
    return lease.holder, lease.term, lease.beat


def test_of_many_that_take_it_at_once_one_gets_it(url: str) -> None:
    start, won = threading.Barrier(6), []

    def take(k: int, leases: Leases) -> None:
        start.wait()
        if leases.swap(VACANT, Lease(f"id{k}", f"head{k}", 1)):
            won.append(f"head{k}")

    with contextlib.ExitStack() as opened:
        each = [opened.enter_context(leases_of(url)) for _ in range(6)]
        threads = [threading.Thread(target=take, args=pair) for pair in enumerate(each)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [each[0].read().name]


def test_a_deposed_leader_writes_neither_chains_nor_journal(url: str) -> None:
    with leases_of(url) as leases:
        leases.swap(VACANT, FIRST)
        deposed = store_in_term(url, FIRST)
        deposed.chains.save(record())
        leases.swap(FIRST, SECOND)
    deposed.journal.write(Entry(1, ChainId("svc"), EntryKind.ACTION, "too late"))
    for act in (
        lambda: deposed.chains.save(record().with_link(ran(1, 100, 200))),
        deposed.journal.flush,
    ):
        with pytest.raises(LeadershipLost, match="head2 leads since, in term 2; ours was 1"):
            act()
    leading = store_in_term(url, SECOND)
    assert leading.chains.load() == (record(),)
    assert leading.journal.read() == ()
    leading.chains.save(record().with_link(ran(1, 100, 200)))
    deposed.stand_by()
    assert deposed.chains.load() == leading.chains.load(), "who stands by may look"
    leading.close()
    deposed.database.close()


def test_who_stands_by_writes_no_chain(url: str) -> None:
    standing_by = store_in_term(url)
    with pytest.raises(LeadershipLost, match="no daemon is the leader"):
        standing_by.chains.save(record())
    standing_by.close()


def led_by(url: str, lease: Lease) -> Store:
    return open_store(url, condition=fence(lease.holder, lease.term))


@pytest.mark.xdist_group("postgres")
def test_a_lease_is_not_taken_between_the_fence_and_the_commit(new_url: Callable[[str], str]) -> None:
    """The next holder reads all committed data; SQLite has one writer at a time anyway."""
    url = new_url("postgres")
    leading, other = led_by(url, FIRST), open_store(url)
    leases = SqlLeases(other.database)
    leases.swap(VACANT, FIRST)
    inside, taken = threading.Event(), threading.Event()

    def take() -> None:
        inside.wait()
        assert leases.swap(FIRST, SECOND)
        taken.set()

    taker = threading.Thread(target=take)
    taker.start()

    def slowly(connection: object) -> None:
        inside.set()
        assert not taken.wait(0.5), "it waits for the transaction"

    leading.database.on_condition(fence("id1", 1)).write(slowly)
    taker.join()
    assert taken.is_set()
    assert leases.read() == SECOND
    for store in (leading, other):
        store.database.close()


@pytest.mark.xdist_group("postgres")
def test_a_machine_gone_within_a_transaction_does_not_keep_the_lease(new_url: Callable[[str], str]) -> None:
    """Its connection stays open as far as the server knows; the server ends the transaction by itself."""
    url = new_url("postgres")
    gone, other = open_store(url), open_store(url)
    leases = SqlLeases(other.database)
    leases.swap(VACANT, FIRST)
    connection = gone.database._engine.connect()
    fence("id1", 1)(connection)
    while leases.read() == FIRST:
        with contextlib.suppress(StoreUnavailable):  # the lock is waited for as long as any other
            leases.swap(FIRST, SECOND)
    assert leases.read() == SECOND
    connection.invalidate()
    for store in (gone, other):
        store.database.close()

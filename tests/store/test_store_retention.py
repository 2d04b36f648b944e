"""Retention, and the audit trail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stored_values import jobs, ran, record

from mirage.domain.chain import ChainId
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.snapshot import Snapshot
from mirage.store.access import AuditEntry
from mirage.store.opening import Retention

if TYPE_CHECKING:
    import pytest

    from mirage.store.opening import Store

A = ChainId("a")
SHORT = Retention(decisions=10, journal=20, snapshots=30, waits=40, jobs=45, outcomes=50, audit=60, chains=70)


def fill(store: Store) -> None:
    """One of each thing at every tenth second from 0 to 90."""
    value = record("a").with_link(ran(1, -20, -10, "a"))
    for n, time in enumerate(range(0, 100, 10)):
        store.journal.write(Entry(time, A, EntryKind.DECISION, "hold"))
        store.journal.write(Entry(time, A, EntryKind.ACTION, "submitted"))
        store.snapshots.write(Snapshot.unseen(time))
        store.waits.add(jobs((n, 0, time)))
        store.audit.write(AuditEntry(time, "alice", 1_000, "pause", A, "done"))
        value = value.with_link(ran(n + 2, time, time + 9, "a"))
    store.chains.save(value)


def test_each_thing_is_deleted_at_its_age(store: Store) -> None:
    fill(store)
    gone = store.prune(SHORT, now=100)
    assert gone == {
        "decisions": 9,
        "journal": 8,
        "snapshots": 7,
        "waits": 6,
        "jobs": 0,
        "outcomes": 5,
        "audit": 4,
        "chains": 0,
    }
    kept = [line.entry for line in store.journal.read()]
    assert [e.time for e in kept if e.kind is EntryKind.DECISION] == [90]
    assert [e.time for e in kept if e.kind is EntryKind.ACTION] == [90, 80]
    assert store.snapshots.times(0, 1_000) == (70, 80, 90)
    assert store.waits.recent_waits(100).start.tolist() == [60, 70, 80, 90]
    assert [one.outcome.successor_start for one in store.outcomes.read()] == [50, 60, 70, 80, 90]
    assert [line.entry.time for line in store.audit.read()] == [90, 80, 70, 60, 50, 40]
    assert store.prune(SHORT, now=100) == dict.fromkeys(gone, 0)


def test_many_rows_go_in_small_bites(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.store.opening._BITE", 3)
    monkeypatch.setattr("mirage.store.opening._SNAPSHOT_BITE", 1)
    fill(store)
    assert store.prune(SHORT, now=1_000)["waits"] == 10
    assert store.snapshots.times(0, 1_000) == ()


def test_cutoffs_are_ages_before_now() -> None:
    assert Retention().cutoffs(0).journal == -Retention().journal
    assert SHORT.cutoffs(1_000).audit == 940


def test_audit_pages(store: Store) -> None:
    for time in range(5):
        chain = A if time % 2 else None
        store.audit.write(AuditEntry(time, "bob", 1_001, "cancel", chain, "rejected: not the owner\0"))
    first = store.audit.read(limit=2)
    assert [line.entry.time for line in first] == [4, 3]
    assert [line.entry.time for line in store.audit.read(before=first[-1].cursor)] == [2, 1, 0]
    assert [line.entry.time for line in store.audit.read(chain=A)] == [3, 1]
    assert first[1].entry == AuditEntry(
        3, "bob", 1_001, "cancel", A, "rejected: not the owner\N{REPLACEMENT CHARACTER}"
    )

"""The journal in the database: nothing lost, nothing out of order, pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event
from sqlalchemy.exc import DataError
from stored_values import FORECAST, SCORES, any_of, emptied, record

from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import JobRequest
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.link import Link
from mirage.domain.objective import Outcome
from mirage.domain.texts import storable
from mirage.store.journal import JournalLine, Span, SqlJournal
from mirage.store.write_buffer import Waiting, WriteBuffer

if TYPE_CHECKING:
    from mirage.store.opening import Store

A, B = ChainId("a"), ChainId("b")


def entry(time: int, chain: ChainId | None = A, kind: EntryKind = EntryKind.EVENT) -> Entry:
    return Entry(time, chain, kind, f"something at {time}")


def texts(store: Store, **query: Any) -> list[str]:
    return [line.entry.text for line in store.journal.read(**query)]


def test_entries_wait_for_a_flush(store: Store) -> None:
    store.journal.write(entry(1))
    assert texts(store) == []
    store.journal.flush()
    store.journal.flush()
    assert texts(store) == ["something at 1"]


def test_entries_go_with_the_next_chain_saved_in_one_transaction(store: Store) -> None:
    store.chains.load()
    commits: list[object] = []
    event.listen(store.database._engine, "commit", commits.append)
    for time in range(500):
        store.journal.write(entry(time))
    store.chains.save(record())
    assert len(commits) == 1
    assert len(texts(store, limit=1_000)) == 500


def test_pages_newest_first(store: Store) -> None:
    for time in range(7):
        store.journal.write(entry(time))
    store.journal.flush()
    seen, before = [], None
    while page := store.journal.read(limit=3, before=before):
        seen += [line.entry.time for line in page]
        before = page[-1].cursor
    assert seen == [6, 5, 4, 3, 2, 1, 0]


def test_one_chain_and_some_kinds(store: Store) -> None:
    store.journal.write(entry(1, A, EntryKind.DECISION))
    store.journal.write(entry(2, B, EntryKind.DECISION))
    store.journal.write(entry(3, None, EntryKind.TROUBLE))
    store.journal.write(entry(4, A, EntryKind.OUTCOME))
    store.journal.flush()
    assert texts(store, chain=A) == ["something at 4", "something at 1"]
    assert texts(store, kinds=[EntryKind.DECISION]) == ["something at 2", "something at 1"]
    assert texts(store, kinds=[EntryKind.TROUBLE, EntryKind.OUTCOME]) == ["something at 4", "something at 3"]
    assert texts(store, chain=B, kinds=[EntryKind.OUTCOME]) == []


@pytest.mark.parametrize("prediction", [FORECAST, SCORES, None])
def test_a_decision_keeps_its_prediction(store: Store, prediction: Any) -> None:
    decided = Entry(5, A, EntryKind.DECISION, "hold: too early", 3, "avg", prediction)
    done = Entry(6, A, EntryKind.OUTCOME, "interruption 60 s", 2, outcome=Outcome(100, 160))
    store.journal.write(decided)
    store.journal.write(done)
    store.journal.flush()
    assert [line.entry for line in store.journal.read()] == [done, decided]


LINKS = st.integers(0, 2**31 - 1)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=any_of(Entry), link=LINKS)
def test_any_entry_comes_back_with_a_text_that_can_be_shown(shared_store: Store, value: Entry, link: int) -> None:
    emptied(shared_store)
    values = {name: getattr(value, name) for name in Entry.__dataclass_fields__} | {"link": link}
    shared_store.journal.write(Entry(**values))
    shared_store.journal.flush()
    [line] = shared_store.journal.read()
    assert line.entry == Entry(**values | {"text": storable(value.text)})
    assert "\0" not in line.entry.text
    line.entry.text.encode()


@given(st.text())
def test_ordinary_text_is_kept_as_it_is(text: str) -> None:
    assert storable(text) == text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def test_entries_outlive_a_flush_that_failed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(work: Any) -> None:
        raise StoreUnavailable("the disk is full")

    store.journal.write(entry(1))
    with monkeypatch.context() as patched:
        patched.setattr(type(store.database), "write", lambda self, work: fail(work))
        with pytest.raises(StoreUnavailable):
            store.journal.flush()
        store.journal.write(entry(2))
    store.journal.flush()
    assert texts(store) == ["something at 2", "something at 1"]


def test_a_database_away_for_long_does_not_fill_the_memory(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mirage.store.write_buffer._MOST", 50)
    outbox = WriteBuffer(store.database)
    journal = SqlJournal(store.database, outbox)
    for time in range(60):
        journal.write(entry(time))
    journal.flush()
    times = [line.entry.time for line in journal.read()]
    assert times[0] == 59
    assert len(times) <= 50
    assert "oldest 5 lines of the journal are lost" in caplog.text


def test_full_write_buffer_keeps_the_entries_of_other_users(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.store.write_buffer._MOST", 50)
    for name, owner in (("mine", "ada"), ("flood", "mallory")):
        chain = Chain(ChainId(name), name, owner, JobRequest(name, owner, 3_600))
        store.chains.save(ChainRecord(chain))
    store.journal.write(entry(0, ChainId("mine")))
    for time in range(1, 1_000):
        store.journal.write(entry(time, ChainId("flood")))
    assert store.journal.unsaved <= 50
    store.journal.flush()
    assert texts(store, chain=ChainId("mine")) == ["something at 0"]
    assert store.journal.read(chain=ChainId("flood"))[0].entry.time == 999


def test_a_span_is_thinned_by_instants_so_that_predictors_stay_side_by_side(store: Store) -> None:
    for time in range(100):
        for name in ("one", "two", "three"):
            store.journal.write(Entry(time, A, EntryKind.SHADOW, "hold", 1 + time // 50, name, FORECAST))
        store.journal.write(entry(time, B, EntryKind.SHADOW))
    store.journal.flush()
    found = [line.entry for line in store.journal.thinned(Span(A), [EntryKind.SHADOW], 60)]
    assert len(found) == 60
    assert {one.chain for one in found} == {A}
    assert [one.time for one in found[::3]] == list(range(99, 0, -5))
    assert all({one.predictor for one in found[i : i + 3]} == {"one", "two", "three"} for i in range(0, 60, 3))
    assert found[0].prediction == FORECAST
    assert len(store.journal.thinned(Span(A, link=2), [EntryKind.SHADOW], 1_000)) == 150
    assert store.journal.thinned(Span(A), [EntryKind.DECISION], 10) == ()


def test_a_span_has_bounds(store: Store) -> None:
    for time in range(10):
        store.journal.write(entry(time))
    store.journal.flush()
    cursors = {line.entry.time: line.cursor for line in store.journal.read()}
    found = store.journal.thinned(Span(A, first=cursors[3], before=cursors[6]), [EntryKind.EVENT], 10)
    assert [line.entry.time for line in found] == [5, 4, 3]


def test_listeners_hear_what_is_on_disk_with_the_place_that_it_has_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[JournalLine] = []
    store.journal.write(entry(0))
    store.journal.listen(heard.append)
    for time in range(1, 8):
        store.journal.write(entry(time))
    with monkeypatch.context() as patched:
        patched.setattr(type(store.database), "write", lambda self, work: fail())
        with pytest.raises(StoreUnavailable):
            store.journal.flush()
    assert heard == [], "no event for an entry that may be lost"
    store.chains.save(record())
    assert tuple(reversed(heard)) == store.journal.read()[:-1]
    store.journal.flush()
    assert len(heard) == 7


def fail() -> None:
    raise StoreUnavailable("the disk is full")


def test_what_came_after_a_cursor_oldest_first(store: Store) -> None:
    for time in range(10):
        store.journal.write(entry(time, A if time % 2 else B))
    store.journal.flush()
    third = store.journal.read()[-3].cursor
    assert [line.entry.time for line in store.journal.since(third, 100)] == [3, 4, 5, 6, 7, 8, 9]
    assert [line.entry.time for line in store.journal.since(third, 3)] == [7, 8, 9]
    assert [line.entry.time for line in store.journal.since(third, 3, [B])] == [4, 6, 8]
    assert store.journal.since(third, 3, []) == ()


@pytest.mark.parametrize("bad", [2**70, None])
def test_journal_drops_the_entry_that_cannot_be_stored(
    store: Store, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = store.journal._outbox
    for time in (1, 2, 3):
        store.journal.write(entry(time))
        row = store.journal.row(entry(time))
        outbox.add(Waiting(row.table, row.row | {"link": bad}, row.told))
    store.journal.flush()
    assert texts(store) == ["something at 3", "something at 2", "something at 1"]
    assert store.journal.unsaved == 0
    assert sum("dropped" in each.getMessage() for each in caplog.records) == 3


def test_journal_entry_saved_with_a_chain_is_dropped_alone(store: Store) -> None:
    heard: list[JournalLine] = []
    store.journal.listen(heard.append)
    store.journal.write(entry(1))
    wrong = Entry(2, A, EntryKind.EVENT, "too large", link=2**70)
    store.chains.save(record(), wrong, entry(3))
    store.chains.forget()
    assert len(store.chains.load()) == 1
    assert texts(store) == ["something at 3", "something at 1"]
    assert [line.entry.time for line in heard] == [1, 3]


def test_chain_that_cannot_be_stored_keeps_the_entries_of_others(store: Store) -> None:
    store.journal.write(entry(1))
    link = Link(1, "mirage:svc:1", planned=2**70)
    with pytest.raises((OverflowError, DataError)):
        store.chains.save(replace(record(), links=(link,)))
    store.journal.flush()
    assert texts(store) == ["something at 1"]

"""Chains in the database: what is written, what older and newer versions mean, handovers."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select, update
from stored_values import emptied, ran, record, records, reopened

from mirage.domain.chain import ChainId, ChainStatus
from mirage.domain.errors import ConfigError, StoreUnavailable
from mirage.domain.job import BatchScript, JobId
from mirage.domain.link import Link, LinkState
from mirage.store.tables import chains, links
from mirage.store.write_buffer import WriteBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.chain import ChainRecord
    from mirage.store.opening import Store

SVC = ChainId("svc")


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """The statements sent, their values next to them."""
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        sent.append(f"{statement} {parameters}")

    engine = store.database._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", note)


def writes(sent: list[str]) -> list[str]:
    """But for the number of the transaction."""
    return [text for text in sent if text.startswith(("INSERT", "UPDATE")) and "INTO about" not in text]


def test_only_what_changed_is_written(store: Store) -> None:
    script = BatchScript("#!/bin/sh\nTHE SCRIPT", environment=(("SECRET", "THE ENVIRONMENT"),))
    first = record(links=3)
    first = replace(first, chain=replace(first.chain, request=replace(first.chain.request, batch=script)))
    store.chains.save(first)
    with statements(store) as sent:
        store.chains.save(first.with_link(replace(first.links[1], reason="resubmitted")))
    assert len(writes(sent)) == 1
    assert "links" in writes(sent)[0]
    assert "mirage:svc:2" in writes(sent)[0]
    assert "mirage:svc:1" not in writes(sent)[0]
    with statements(store) as sent:
        store.chains.save(replace(store.chains.load()[0], failures=4))
    assert len(writes(sent)) == 1
    assert not any("THE SCRIPT" in text or "THE ENVIRONMENT" in text for text in sent)


def test_nothing_is_asked_of_the_database_once_it_is_read(store: Store) -> None:
    store.chains.save(record())
    with statements(store) as sent:
        for _ in range(3):
            store.chains.load()
        store.chains.save(record())
    assert sent == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=records())
def test_the_columns_say_what_the_documents_say(shared_store: Store, value: ChainRecord) -> None:
    reopened(emptied(shared_store)).save(value)
    row = shared_store.database.read(lambda c: c.execute(select(chains)).one())
    assert (row.chain_id, row.status) == (value.chain.chain_id, value.status)
    rows = shared_store.database.read(lambda c: c.execute(select(links).order_by(links.c.index)).all())
    assert [(r[1], r.state, r.job_id, r.planned, r.submit, r.start, r.end) for r in rows] == [
        (k.index, k.state, k.job_id, k.planned, k.submit, k.start, k.end) for k in value.links
    ]


def test_numbers_out_of_columns_are_stored_as_numbers(store: Store) -> None:
    link = ran(1, 100, 200)
    link = replace(link, job_id=JobId(np.int64(link.job_id)), start=np.int64(100))  # type: ignore[arg-type]
    store.chains.save(record().with_link(link))
    assert reopened(store).load() == (record().with_link(ran(1, 100, 200)),)


# Documents of other versions


def edited(store: Store, table: Any, column: str, **changes: Any) -> None:
    """Fields of a stored document set, or taken out where the change is ``None``."""

    def edit(connection: Any) -> None:
        document = json.loads(connection.execute(select(table.c[column])).scalar_one())
        for name, value in changes.items():
            document.pop(name, None) if value is None else document.update({name: value})
        connection.execute(update(table).values({column: json.dumps(document)}))

    store.database.write(edit)


def test_a_field_that_an_older_version_did_not_store_has_its_default(store: Store) -> None:
    value = record().with_link(ran(1, 100, 200, retired=150))
    store.chains.save(replace(value, failures=3))
    edited(store, links, "document", retired=None)
    edited(store, chains, "progress", failures=None)
    edited(store, chains, "definition", handover=None, steering=None)
    assert reopened(store).load() == (record().with_link(ran(1, 100, 200)),)


def test_stored_job_id_that_no_job_can_have_is_dropped(store: Store) -> None:
    sent = Link(1, "mirage:svc:1", 10, LinkState.SUBMITTED, JobId(7), 11, reason="due")
    store.chains.save(record().with_link(sent))
    edited(store, links, "document", job_id=-5)
    chains_ = reopened(store)
    assert chains_.load() == (record().with_link(Link(1, sent.tag, 10, reason="due")),)
    again = record().with_link(replace(sent, job_id=JobId(8)))
    chains_.save(again)
    assert reopened(store).load() == (again,)


@pytest.mark.parametrize(
    ("table", "column", "field"),
    [
        (chains, "definition", "chain.novelty"),
        (chains, "progress", "novelty"),
        (links, "document", "links.0.novelty"),
    ],
)
def test_a_field_of_a_newer_version_is_refused(store: Store, table: Any, column: str, field: str) -> None:
    store.chains.save(record(links=1))
    edited(store, table, column, novelty=1)
    with pytest.raises(ConfigError, match=rf"chain svc: {field}: a field unknown to this version; .*newer Mirage"):
        reopened(store).load()


def test_a_word_of_a_newer_version_is_refused(store: Store) -> None:
    store.chains.save(record())
    edited(store, chains, "progress", status="hibernating")
    with pytest.raises(ConfigError, match=r"chain svc: status: Input should be .*newer Mirage"):
        reopened(store).load()


def test_a_damaged_document_is_named(store: Store) -> None:
    store.chains.save(record())
    store.database.write(lambda c: c.execute(update(chains).values(progress='{"status":')))
    with pytest.raises(ConfigError, match=r"chain svc: .*damaged"):
        reopened(store).load()


# Handovers


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(values=st.lists(records(), min_size=1, max_size=4))
def test_hand_overs_stored_are_those_of_the_record(shared_store: Store, values: list[ChainRecord]) -> None:
    store = reopened(emptied(shared_store))
    for value in values:
        store.save(replace(value, chain=replace(value.chain, chain_id=SVC)))
    found = shared_store.outcomes.read(SVC)
    expected = {before.index: outcome for before, outcome in values[-1].handovers()}
    assert {one.predecessor: one.outcome for one in found} == expected
    for one in found:
        link = values[-1].links[one.successor - 1]
        from_then = max(link.start, one.outcome.predecessor_end) if link.looks else link.start
        assert from_then == one.outcome.successor_start


def test_a_hand_over_is_stored_when_it_is_complete(store: Store) -> None:
    value = record().with_link(ran(1, 100, 200))
    store.chains.save(value)
    assert store.outcomes.read() == ()
    running = Link(3, "mirage:svc:3", 190, LinkState.RUNNING, JobId(9), 190, 260, 500)
    lost = Link(2, "mirage:svc:2", 150, LinkState.LOST)
    value = value.with_link(lost).with_link(running)
    store.chains.save(value)
    [one] = store.outcomes.read(SVC, since=260)
    assert (one.chain, one.predecessor, one.successor) == (SVC, 1, 3)
    assert (one.outcome.interruption, one.outcome.overlap) == (60, 0)
    assert store.outcomes.read(since=261) == ()
    store.chains.save(value.with_link(replace(running, state=LinkState.PENDING, start=-1)))
    assert store.outcomes.read() == (), "the successor was requeued: it has not started after all"


# Failures, retention


def test_the_view_in_memory_is_what_was_stored_when_saving_fails(store: Store, monkeypatch: Any) -> None:
    store.chains.save(record())

    def fail(self: WriteBuffer, work: Any = None, also: Any = ()) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(WriteBuffer, "commit", fail)
        with pytest.raises(StoreUnavailable):
            store.chains.save(record(failures=1))
    assert store.chains.load() == (record(),)
    store.chains.save(record(failures=2))
    assert store.chains.load() == reopened(store).load() == (record(failures=2),)


def test_a_chain_that_another_process_removed_is_not_written_to_nowhere(store: Store) -> None:
    store.chains.save(record())
    store.database.write(lambda c: c.execute(chains.delete()))
    with pytest.raises(StoreUnavailable, match="another process removed chain svc"):
        store.chains.save(record(failures=1))


def test_only_chains_over_for_long_are_forgotten(store: Store) -> None:
    over = ChainStatus.DONE
    kept = [
        record("active").with_link(ran(1, 10, 20, "active")),
        record("recent", status=over).with_link(ran(1, 10, 1_000, "recent")),
        record("unborn", status=over),
        record("live", links=1, status=over),
    ]
    for value in (record("old", status=over).with_link(ran(1, 10, 20, "old")), *kept):
        store.chains.save(value)
    assert store.chains.prune(before=1_000) == 1
    assert store.chains.load() == reopened(store).load() == tuple(kept)
    assert store.database.read(lambda c: c.execute(select(links.c.chain_id).distinct()).scalars().all()) != []
    assert "old" not in store.database.read(lambda c: c.execute(select(links.c.chain_id)).scalars().all())

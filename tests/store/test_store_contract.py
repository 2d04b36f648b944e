"""The contract of all chain stores, the one in memory and those in databases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_values import CHAIN_IDS, emptied, ran, record, records, reopened, whole

from mirage.control.stores import MemoryStore
from mirage.domain.chain import ChainId, ChainStatus
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.domain.chain import ChainRecord
    from mirage.ports import ChainStore
    from mirage.store.opening import Store

ALL = ["memory", "sqlite", "directory", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))]


@pytest.fixture(params=ALL)
def chain_store(request: pytest.FixtureRequest, new_url: Callable[[str], str]) -> Iterator[ChainStore]:
    if request.param == "memory":
        yield MemoryStore()
        return
    store = open_store(new_url(request.param))
    yield store.chains
    store.database.close()


def test_nothing_is_there_at_first(chain_store: ChainStore) -> None:
    assert chain_store.load() == ()


def test_records_come_in_order_of_creation_also_when_replaced(chain_store: ChainStore) -> None:
    first, second, third = record("b"), record("a"), record("c")
    for one in (first, second, third):
        chain_store.save(one)
    changed = replace(first, status=ChainStatus.PAUSED, reason="asked by alice")
    chain_store.save(changed)
    assert chain_store.load() == (changed, second, third)


def test_saving_what_is_there_changes_nothing(chain_store: ChainStore) -> None:
    chain_store.save(record(links=2))
    chain_store.save(record(links=2))
    assert chain_store.load() == (record(links=2),)


def test_a_link_is_added_and_replaced(chain_store: ChainStore) -> None:
    chain_store.save(record(links=1))
    chain_store.save(record(links=1).with_link(ran(1, 100, 200)))
    longer = chain_store.load()[0].with_link(ran(2, 210, 400))
    chain_store.save(longer)
    assert chain_store.load() == (longer,)


def test_a_link_that_never_was_is_taken_back(chain_store: ChainStore) -> None:
    """A planned link that could not be submitted, where nothing else of the record changes."""
    chain_store.save(record(links=2))
    chain_store.save(record(links=1))
    assert chain_store.load() == (record(links=1),)


def test_a_record_may_replace_all_of_another(chain_store: ChainStore) -> None:
    chain_store.save(record(links=3, failures=2))
    other = replace(record(links=1), chain=replace(record().chain, owner="bob"))
    chain_store.save(other)
    assert chain_store.load() == (other,)


def test_what_was_loaded_before_does_not_change(chain_store: ChainStore) -> None:
    chain_store.save(record())
    before = chain_store.load()
    chain_store.save(record(failures=1))
    chain_store.save(record("other"))
    assert before == (record(),)


SAVES = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), records()), max_size=8)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(saves=SAVES)
def test_any_records_in_any_order_survive_a_restart(
    shared_store: Store, saves: list[tuple[str, ChainRecord]]
) -> None:
    chains, model = reopened(emptied(shared_store)), MemoryStore()
    for name, value in saves:
        named = replace(value, chain=replace(value.chain, chain_id=ChainId(name)))
        chains.save(named)
        model.save(named)
        assert whole(chains) == model.load()
    assert whole(reopened(shared_store)) == model.load()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=records(), lengths=st.lists(st.integers(0, 3), max_size=6))
def test_links_come_and_go_where_nothing_else_changes(
    shared_store: Store, value: ChainRecord, lengths: list[int]
) -> None:
    chains = reopened(emptied(shared_store))
    for length in lengths:
        chains.save(replace(value, links=value.links[:length]))
        assert whole(chains) == (replace(value, links=value.links[:length]),)
        assert reopened(shared_store).load() == chains.load()


@given(name=CHAIN_IDS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_chain_id_is_a_key(shared_store: Store, name: str) -> None:
    chains = reopened(emptied(shared_store))
    chains.save(record(name, links=1))
    assert reopened(shared_store).load() == (record(name, links=1),)

"""Values to store: a few manually, any by hypothesis."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, NewType, TypeVar

import numpy as np
from hypothesis import strategies as st
from sqlalchemy import delete

from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.decision import ActionScores, Prediction, WaitForecast
from mirage.domain.job import Job, JobId, JobRequest, Seconds
from mirage.domain.link import Link, LinkState, without_impossible_ids
from mirage.domain.objective import Outcome
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.store.chains import SqlChainStore
from mirage.store.journal import SqlJournal
from mirage.store.tables import about, metadata
from mirage.store.waits import StartedJobs
from mirage.store.write_buffer import WriteBuffer

if typing.TYPE_CHECKING:
    from mirage.ports import ChainStore
    from mirage.store.opening import Store

T = TypeVar("T")

INT64 = st.integers(-(2**63), 2**63 - 1)
# Bytes that were no UTF-8 come as lone surrogates; text from outside may hold a NUL.
TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
CHAIN_IDS = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True).map(ChainId)
_NAMES = {
    "ChainId": ChainId,
    "Outcome": Outcome,
    "Prediction": Prediction,
    "Seconds": Seconds,
    "Mapping": Mapping,
}


def record(name: str = "svc", links: int = 0, **fields_: Any) -> ChainRecord:
    """A chain with planned links."""
    chain = Chain(ChainId(name), name, "alice", JobRequest(name, "", 3_600))
    return ChainRecord(chain, tuple(Link(i, chain.tag(i), 10 * i) for i in range(1, links + 1)), **fields_)


def ran(index: int, start: int, end: int, chain: str = "svc", **fields_: Any) -> Link:
    """A link that has ended."""
    tag = f"mirage:{chain}:{index}"
    return Link(index, tag, start - 10, LinkState.ENDED, JobId(100 + index), start - 5, start, end, **fields_)


def any_of(kind: type[T]) -> st.SearchStrategy[T]:
    """Any value of a dataclass of the domain, its fields within what a database can hold."""
    return typing.cast("st.SearchStrategy[T]", _values(kind))


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if hint is ChainId:
        return CHAIN_IDS
    if isinstance(hint, NewType):
        return _values(hint.__supertype__)
    if is_dataclass(hint):
        return _built(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    simple = {
        int: INT64,
        str: TEXT,
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        types.NoneType: st.none(),
    }
    return simple[hint] if hint in simple else _composed(typing.get_origin(hint), typing.get_args(hint))


def _built(hint: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(hint, localns=_NAMES)
    return st.builds(hint, **{f.name: _values(hints[f.name]) for f in fields(hint)})


def _composed(origin: Any, parts: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_values(part) for part in parts])
    if origin is Mapping:
        return st.dictionaries(_values(parts[0]), _values(parts[1]), max_size=3)
    assert origin is tuple, origin
    if parts[-1] is ...:
        return st.lists(_values(parts[0]), max_size=3).map(tuple)
    return st.tuples(*(_values(part) for part in parts))


@st.composite
def records(draw: st.DrawFn) -> ChainRecord:
    """Any record whose links are numbered from 1, as ``ChainRecord`` demands, of jobs that can be."""
    value = draw(any_of(ChainRecord))
    links = tuple(
        Link(
            **{f.name: getattr(link, f.name) for f in fields(Link)}
            | {"index": i, "start": abs(link.start) >> 2, "end": abs(link.end) >> 2}
        )
        for i, link in enumerate(value.links, start=1)
    )
    made = ChainRecord(**{f.name: getattr(value, f.name) for f in fields(ChainRecord)} | {"links": links})
    return without_impossible_ids(made)


@st.composite
def job_columns(draw: st.DrawFn) -> JobColumns:
    """Columns of any numbers, some of them sorted either way."""
    rows = draw(st.integers(0, 6))
    columns = []
    for _ in fields(JobColumns):
        values = draw(st.lists(INT64, min_size=rows, max_size=rows))
        order = draw(st.sampled_from(["as drawn", "rising", "falling"]))
        columns.append(values if order == "as drawn" else sorted(values, reverse=order == "falling"))
    return JobColumns(*(np.array(column, dtype=np.int64) for column in columns))


@st.composite
def any_snapshots(draw: st.DrawFn) -> Snapshot:
    texts = st.lists(TEXT, max_size=3).map(tuple)
    return Snapshot(
        draw(INT64),
        draw(job_columns()),
        draw(job_columns()),
        draw(st.lists(any_of(PartitionState), max_size=3).map(tuple)),
        draw(texts),
        draw(texts),
        draw(texts),
        draw(st.dictionaries(TEXT, any_of(Job), max_size=3)),
        draw(st.lists(any_of(Job), max_size=2).map(tuple)),
        draw(st.frozensets(TEXT, max_size=3)),
        draw(st.lists(any_of(Job), max_size=2).map(tuple)),
        draw(INT64),
    )


def same(a: Any, b: Any) -> bool:
    """Equality of dataclasses that hold arrays."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(a == b)


def reopened(store: Store) -> SqlChainStore:
    """A second view of the chains, which has only the database to go by."""
    outbox = WriteBuffer(store.database)
    return SqlChainStore(store.database, outbox, SqlJournal(store.database, outbox))


def whole(chains: ChainStore) -> tuple[ChainRecord, ...]:
    """Every record with its script."""
    return tuple(with_script(chains, each) for each in chains.load())


def with_script(chains: ChainStore, of: ChainRecord) -> ChainRecord:
    """The record with its script."""
    return replace(of, chain=replace(of.chain, request=chains.with_script(of.chain.request)))


def emptied(store: Store) -> Store:
    """Every row deleted but those about the database itself, by which it is known."""

    def clear(connection: Any) -> None:
        for table in reversed(metadata.sorted_tables):
            if table is not about:
                connection.execute(delete(table))

    store.database.write(clear)
    return store


def jobs(*rows: tuple[int, int, int], partition: str = "a100") -> StartedJobs:
    """One-node jobs of an hour from (id, submit, start)."""
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    ones = np.ones(len(table), dtype=np.int64)
    return StartedJobs(table[:, 0], table[:, 1], table[:, 2], ones, ones * 3_600, ones * 0, (partition,))


FORECAST = WaitForecast((0.1, 0.5), (5.0, 7.25))
SCORES = ActionScores(0.25, -1.0)

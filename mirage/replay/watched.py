"""Handovers as a daemon's database has them, with the predictions of every predictor before each."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from mirage.domain.journal import EntryKind
from mirage.replay.shadows import Judged, Measured, Watched, compared, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.decision import RecentWaits
    from mirage.domain.job import Seconds
    from mirage.domain.journal import Entry
    from mirage.domain.objective import Weights
    from mirage.store.opening import Store
    from mirage.store.outcomes import HandoverRecord

_KINDS = (EntryKind.DECISION, EntryKind.SHADOW)
_PAGE = 1_000
_WAITS = 200_000
"""Waits looked at, the latest."""
_EVERY = sys.maxsize
SPAN: Seconds = 30 * 86_400
"""Maximum age of the handovers by which a daemon compares predictors."""


@dataclass(frozen=True, slots=True)
class JudgedHandover:
    """Score of each predictor at one handover, and the class of its links."""

    partition: str
    """Partition in which its successor ran; empty: not known."""
    nodes: int
    limit: Seconds
    judged: tuple[Judged, ...]
    start: Seconds = 0
    """Of the successor."""


def shadow_results(store: Store, weights: Weights, since: Seconds) -> tuple[Measured, ...]:
    """Every predictor over each partition's handovers since then. Raises ``StoreUnavailable``."""
    return compared_by_partition(tuple(judged_handovers(store, since)), weights)


def compared_by_partition(handovers: Sequence[JudgedHandover], weights: Weights) -> tuple[Measured, ...]:
    """All predictors, partition by partition: what is good in an idle one may be bad in a contended one."""
    found: list[Measured] = []
    for partition in sorted({each.partition for each in handovers}):
        measured = compared((each.judged for each in handovers if each.partition == partition), weights)
        found += (replace(each, partition=partition) for each in measured)
    return tuple(found)


def judged_handovers(
    store: Store, since: Seconds, latest: int = _EVERY, entries: int = _EVERY
) -> Iterator[JudgedHandover]:
    """The handovers since then of which something was predicted. Raises ``StoreUnavailable``.

    Only the ``latest`` of them, each with at most its last ``entries`` journal entries. These include the
    forecasts at the submission, but may lack the first time that a shadow decided to submit.
    """
    records = {record.chain.chain_id: record for record in store.chains.load()}
    waits: dict[str, RecentWaits] = {}
    for handover in store.outcomes.read(since=since)[-latest:]:
        record = records.get(handover.chain)
        watched = _watched(store, record, handover, entries) if record is not None else None
        if watched is not None:
            where = watched.partition
            if where not in waits:
                waits[where] = store.waits.recent_waits(_WAITS, where)
            judged, start = judge(watched, waits[where]), handover.outcome.successor_start
            yield JudgedHandover(where, watched.nodes, watched.limit, judged, start)


def _watched(store: Store, record: ChainRecord, handover: HandoverRecord, most: int) -> Watched | None:
    """``None`` where no predictor was asked, or its answers are deleted."""
    link = record.links[handover.successor - 1]
    found = islice(_entries(store, handover.chain, link.index, min(most, _PAGE)), most)
    said = [entry for entry in found if entry.prediction is not None]
    entries = tuple(reversed([entry for entry in said if entry.time <= max(link.submit, link.planned)]))
    if not any(entry.kind is EntryKind.DECISION for entry in entries):
        return None
    request = record.chain.request
    partition = store.waits.partition_of(link.job_id) or request.partition
    return Watched(
        partition, request.nodes, request.limit, max(link.submit, link.planned), handover.outcome, entries
    )


def _entries(store: Store, chain: ChainId, link: int, page_size: int) -> Iterator[Entry]:
    """Yield the prediction entries of a link, newest first, page by page."""
    before: int | None = None
    while page := store.journal.read(chain, _KINDS, before, page_size, link):
        yield from (line.entry for line in page)
        before = page[-1].cursor

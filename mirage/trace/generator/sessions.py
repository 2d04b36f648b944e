"""Finds batches, series and hand-made chains in a job table.

A hand-made chain is a service that a user keeps running manually: a job meets a long limit, and the same thing
starts again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT
from mirage.trace.generator.model import BATCH_GAP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.jobtable import Int32, Int64, JobTable, Names

MIN_LIMIT = 12 * 3600
"""Seconds of limit from which on a job can be a link."""
MET_LIMIT = 0.98
"""Share of its limit that a link has run."""
LINK_WINDOW = 72 * 3600
"""Largest distance in seconds between the end of a link and the start of the next, in either direction."""
PROMPT_DELAY = 600
"""Seconds after a link's end within which a user who waits for it submits the next."""
LATE_DELAY = 3600


@dataclass(frozen=True, slots=True)
class HandChainStats:
    """Pairs of neighbouring links. All durations are hours and None where there is no gap.

    Lateness is an upper bound on what proactive submission could save: a user may have paused on purpose.
    """

    pairs: int
    users: int
    overlapping: int
    """Pairs whose second link started before the first one ended (often several runs side by side)."""
    gaps: int
    gap_mean: float | None
    """From the end of a link to the start of the next, over the pairs with a gap."""
    gap_median: float | None
    late_mean: float | None
    """Part of the gap before the next link was submitted; 0 where it was submitted ahead."""
    queued_mean: float | None
    """Part of the gap in which the next link was waiting in the queue."""
    submitted_ahead: float | None
    """Share of the gaps whose next link was submitted before the end of the one before."""
    submitted_within_10_minutes: float | None
    submitted_after_an_hour: float | None


def find_pairs(table: JobTable) -> tuple[Int64, Int64]:
    """Rows of the predecessors and of their successors.

    A predecessor ran at least ``MET_LIMIT`` of a limit of at least ``MIN_LIMIT``; its successor is the next job of
    the same user, name and number of nodes to start, if it starts within ``LINK_WINDOW`` of the predecessor's end.
    """
    keys: tuple[Int32, ...] = (table.user.codes, table.name.codes, table.nodes)
    known = (table.start != ABSENT) & (table.end != ABSENT) & (table.user.codes >= 0) & (table.name.codes >= 0)
    rows = np.flatnonzero(known)
    order = rows[np.lexsort(np.stack([table.start[rows], *(key[rows] for key in keys)]))]
    before, after = order[:-1], order[1:]
    linked = np.all([key[before] == key[after] for key in keys], axis=0)
    linked &= (table.limit[before] >= MIN_LIMIT) & (table.runtime[before] >= MET_LIMIT * table.limit[before])
    linked &= np.abs(table.start[after] - table.end[before]) <= LINK_WINDOW
    return before[linked], after[linked]


def hand_chains(table: JobTable) -> HandChainStats:
    """The chains in ``table`` and how late their users were."""
    before, after = find_pairs(table)
    gap = table.start[after] - table.end[before]
    broken = gap > 0
    lateness = (table.submit[after] - table.end[before])[broken]
    gaps = gap[broken]
    late = np.maximum(lateness, 0)
    return HandChainStats(
        pairs=len(before),
        users=len(np.unique(table.user.codes[before])),
        overlapping=int((~broken).sum()),
        gaps=len(gaps),
        gap_mean=_mean(gaps / 3600),
        gap_median=float(np.median(gaps)) / 3600 if len(gaps) else None,
        late_mean=_mean(late / 3600),
        queued_mean=_mean((gaps - late) / 3600),
        submitted_ahead=_mean(lateness <= 0),
        submitted_within_10_minutes=_mean((lateness > 0) & (lateness <= PROMPT_DELAY)),
        submitted_after_an_hour=_mean(lateness > LATE_DELAY),
    )


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64 | np.bool_]]) -> float | None:
    return float(values.mean()) if len(values) else None


CHAIN_LIMIT = 12 * 3600
"""Only jobs that may run this long (seconds) count as links of a hand-made chain."""
CHAIN_RUN = 0.98
"""Share of its limit a job must have run to count as one that needed more time."""
CHAIN_WINDOW = 72 * 3600
"""Largest distance in seconds between the end of a link and the start of the next, in either direction."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The batch and series of each job, and of each batch its first job; rows are the table's."""

    series: Int64
    """Number of its (user, name without digits, nodes, limit)."""
    batch: Int64
    """Numbered by first submission."""
    first: Int64
    """Row of each batch's first job."""
    size: Int64
    """Jobs of each batch."""


@dataclass(frozen=True, slots=True)
class Continuations:
    """Jobs that met a long limit, each with the next start of the same user, name and nodes.

    Only those whose next start is within ``CHAIN_WINDOW`` of the end, as rows of the table.
    """

    predecessor: Int64
    successor: Int64


def numbered(*columns: Int64 | Int32) -> Int64:
    """A number for each row's combination of values."""
    rows = np.stack([np.asarray(c, dtype=np.int64) for c in columns], axis=1)
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def name_stems(names: Names) -> Int64:
    """Codes of the names with digits removed (``dimer.10`` and ``dimer.11`` are one); -1 where absent."""
    index: dict[str, int] = {}
    stems = [index.setdefault(re.sub(r"\d+", "", n), len(index)) for n in names.vocabulary]
    return np.array([*stems, -1], dtype=np.int64)[names.codes]


def find_sessions(table: JobTable) -> Sessions:
    """Split ``table`` (sorted by submission) into batches."""
    series = numbered(table.user.codes, name_stems(table.name), table.nodes, table.limit)
    order = np.lexsort((table.submit, series))
    opens = np.ones(len(table), dtype=bool)
    opens[1:] = (np.diff(series[order]) != 0) | (np.diff(table.submit[order]) > BATCH_GAP)
    by_series = np.empty(len(table), dtype=np.int64)
    by_series[order] = np.cumsum(opens) - 1
    heads = order[opens]
    place = np.empty(len(heads), dtype=np.int64)
    place[np.argsort(heads, kind="stable")] = np.arange(len(heads))
    return Sessions(series, place[by_series], np.sort(heads), np.bincount(place[by_series]))


def find_continuations(table: JobTable) -> Continuations:
    """Pairs of neighbouring links of hand-made chains; an upper bound, since users may pause on purpose."""
    service = numbered(table.user.codes, name_stems(table.name), table.nodes)
    rows = np.flatnonzero(table.start != ABSENT)
    order = rows[np.lexsort((table.start[rows], service[rows]))]
    before, after = order[:-1], order[1:]
    near = np.abs(table.start[after] - table.end[before]) <= CHAIN_WINDOW
    linked = (service[before] == service[after]) & met_long_limit(table)[before] & near
    return Continuations(before[linked], after[linked])


def met_long_limit(table: JobTable) -> NDArray[np.bool_]:
    """Whether each job ran nearly to a limit of ``CHAIN_LIMIT`` or more."""
    return np.asarray((table.limit >= CHAIN_LIMIT) & (table.runtime >= CHAIN_RUN * table.limit))

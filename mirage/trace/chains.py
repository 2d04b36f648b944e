"""Services that users keep running manually: a job meets a long limit, and the same thing starts again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int32, Int64, JobTable

MIN_LIMIT = 12 * 3600
"""Seconds of limit from which on a job can be a link."""
MET_LIMIT = 0.98
"""Share of its limit that a link has run."""
WINDOW = 72 * 3600
"""Largest distance in seconds between the end of a link and the start of the next, in either direction."""
PROMPT = 600
"""Seconds after a link's end within which a user who waits for it submits the next."""
LATE = 3600


@dataclass(frozen=True, slots=True)
class HandChains:
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
    the same user, name and number of nodes to start, if it starts within ``WINDOW`` of the predecessor's end.
    """
    keys: tuple[Int32, ...] = (table.user.codes, table.name.codes, table.nodes)
    known = (table.start != ABSENT) & (table.end != ABSENT) & (table.user.codes >= 0) & (table.name.codes >= 0)
    rows = np.flatnonzero(known)
    order = rows[np.lexsort(np.stack([table.start[rows], *(key[rows] for key in keys)]))]
    before, after = order[:-1], order[1:]
    linked = np.all([key[before] == key[after] for key in keys], axis=0)
    linked &= (table.limit[before] >= MIN_LIMIT) & (table.runtime[before] >= MET_LIMIT * table.limit[before])
    linked &= np.abs(table.start[after] - table.end[before]) <= WINDOW
    return before[linked], after[linked]


def hand_chains(table: JobTable) -> HandChains:
    """The chains in ``table`` and how late their users were."""
    before, after = find_pairs(table)
    gap = table.start[after] - table.end[before]
    broken = gap > 0
    lateness = (table.submit[after] - table.end[before])[broken]
    gaps = gap[broken]
    late = np.maximum(lateness, 0)
    return HandChains(
        pairs=len(before),
        users=len(np.unique(table.user.codes[before])),
        overlapping=int((~broken).sum()),
        gaps=len(gaps),
        gap_mean=_mean(gaps / 3600),
        gap_median=float(np.median(gaps)) / 3600 if len(gaps) else None,
        late_mean=_mean(late / 3600),
        queued_mean=_mean((gaps - late) / 3600),
        submitted_ahead=_mean(lateness <= 0),
        submitted_within_10_minutes=_mean((lateness > 0) & (lateness <= PROMPT)),
        submitted_after_an_hour=_mean(lateness > LATE),
    )


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64 | np.bool_]]) -> float | None:
    return float(values.mean()) if len(values) else None

"""The content of a job table at the time of a submission, without any later event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import RecentWaits
from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, NEVER
from mirage.domain.jobtable import wait_began
from mirage.features.waitclass import SEARCHED

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable, Names

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Tally:
    """Amount that had come, and had not left, strictly before a time, by group."""

    def __init__(self, group: Int64, came: Int64, left: Int64, weight: Float64) -> None:
        """Equal lengths. ``left`` is ``NEVER`` for what stays; an item that leaves on arrival never counts."""
        self._came, self._left = Ledger(group, came, weight), Ledger(group, left, weight)

    def at(self, group: Int64, time: Int64) -> Float64:
        """The sum of present weights, one for each pair of a group and a time."""
        return self._came.before(group, time) - self._left.before(group, time)


class Ledger:
    """Sums of weights of events strictly before a time, group by group."""

    def __init__(self, group: Int64, time: Int64, weight: Float64) -> None:
        order = np.lexsort((time, group))
        self._group, self._time = group[order], time[order]
        self._sums = np.concatenate([[0.0], np.cumsum(weight[order])])
        self._order = order

    def before(self, group: Int64, time: Int64) -> Float64:
        """The sum for each pair."""
        first, last = self.places(group, time)
        return np.asarray(self._sums[last] - self._sums[first])

    def places(self, group: Int64, time: Int64) -> tuple[Int64, Int64]:
        """For each pair the events of the group before the time, as a range of ``rows``."""
        first, last = np.empty(len(time), dtype=np.int64), np.empty(len(time), dtype=np.int64)
        for one in np.unique(group):
            asked = group == one
            low, high = np.searchsorted(self._group, [one, one + 1])
            first[asked] = low
            last[asked] = low + np.searchsorted(self._time[low:high], time[asked], side="left")
        return first, last

    @property
    def rows(self) -> Int64:
        """Rows of the events, group by group in order of time."""
        return self._order


@dataclass(frozen=True, slots=True)
class Records:
    """The jobs of a trace, and those of them whose waits are predicted."""

    table: JobTable
    partition: Int64
    user: Int64
    """Codes from 0; one for all where the source has none."""
    left_queue: Int64
    """When a job stopped pending; ``NEVER`` where that is not known."""
    left: Int64
    """When a job that had started ended; ``NEVER`` where that is not known."""

    @classmethod
    def of(cls, table: JobTable) -> Records:
        """Raises ``TraceError`` for a table without recorded waits."""
        started = table.start != ABSENT
        if not (started & (table.start >= table.submit)).any() or not (table.wait > 0).any():
            raise TraceError(table.source, 0, "start", "the trace has no recorded waits")
        ended = np.where(table.end != ABSENT, table.end, NEVER)
        # A job with an unknown end of its pending time must not stay in the queue indefinitely.
        gone = np.where(table.end != ABSENT, table.end, table.submit)
        left_queue = np.where(started, table.start, gone)
        return cls(table, _codes(table.partition), _codes(table.user), left_queue, np.where(started, ended, NEVER))

    @property
    def started(self) -> Int64:
        """Rows of the jobs whose wait is recorded, by submission."""
        table = self.table
        return np.flatnonzero((table.start != ABSENT) & (table.start >= table.submit))

    def wait_hours(self, rows: Int64) -> Float64:
        """Waits in seconds; shape as ``rows``."""
        return np.asarray((self.table.start[rows] - self.table.submit[rows]) / 3_600)

    def recent(self, rows: Int64) -> list[RecentWaits]:
        """For each row the waits of the last jobs of its partition that had started before its submission."""
        table, known = self.table, self.started
        ledger = Ledger(self.partition[known], table.start[known], np.ones(len(known)))
        first, last = ledger.places(self.partition[rows], table.submit[rows])
        ordered = known[ledger.rows]
        start = table.start[ordered]
        wait = start - wait_began(table.submit[ordered], table.eligible[ordered], start)
        nodes, limit = table.nodes[ordered].astype(np.int64), table.limit[ordered]
        found = []
        for low, high in zip(np.maximum(first, last - SEARCHED).tolist(), last.tolist(), strict=True):
            part = slice(low, high)
            found.append(RecentWaits(start[part], wait[part], nodes[part], limit[part]))
        return found


def _codes(names: Names) -> Int64:
    return names.codes.astype(np.int64) + 1

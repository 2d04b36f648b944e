"""How many nodes the jobs of a trace held, over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.jobtable import Int64, JobTable

HOUR = 3600


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A step function: ``held[i]`` nodes from ``time[i]`` to ``time[i + 1]``; nothing before or after."""

    time: Int64
    """Ascending, each time once."""
    held: Int64

    @property
    def peak(self) -> int:
        """The most held at one time."""
        return int(self.held.max(initial=0))

    def node_seconds(self, instants: Int64) -> Int64:
        """Node-seconds used until each of the times."""
        if not len(self.time):
            return np.zeros(len(instants), dtype=np.int64)
        used = np.concatenate([[0], np.cumsum(self.held[:-1] * np.diff(self.time))])
        place = np.clip(np.searchsorted(self.time, instants, side="right") - 1, 0, None)
        since = np.maximum(instants - self.time[place], 0)
        return np.asarray(used[place] + self.held[place] * since)

    def hourly(self) -> NDArray[np.float64]:
        """Mean nodes held in each whole hour (of the clock) between the first start and the last end."""
        if not len(self.time):
            return np.empty(0)
        first, last = -(-int(self.time[0]) // HOUR), int(self.time[-1]) // HOUR
        hours = np.arange(first, max(last, first) + 1) * HOUR
        return np.diff(self.node_seconds(hours)) / HOUR


def occupancy(table: JobTable, size: Int64) -> Occupancy:
    """What the jobs that ran held; ``size`` is the amount of each job. A job still running holds on to the end."""
    ran = (table.start != ABSENT) & (size > 0)
    last = int(max(table.end.max(initial=0), table.start.max(initial=0)))
    start, end = table.start[ran], np.where(table.end[ran] == ABSENT, last, table.end[ran])
    times = np.concatenate([start, end])
    changes = np.concatenate([size[ran], -size[ran]])
    instants, place = np.unique(times, return_inverse=True)
    steps = np.zeros(len(instants), dtype=np.int64)
    np.add.at(steps, place, changes)
    return Occupancy(instants, np.cumsum(steps))

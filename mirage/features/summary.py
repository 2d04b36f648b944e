"""One snapshot's queue as numbers: what every feature schema chooses its columns from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.snapshot import JobColumns, Snapshot

_LEVELS = (0, 25, 50, 75, 100)


def _percentiles(what: str) -> tuple[str, ...]:
    return tuple(f"{what}_p{level}" for level in _LEVELS)


COLUMNS = (
    "pending_jobs",
    "pending_nodes",
    *_percentiles("pending_limit"),
    *_percentiles("pending_age"),
    "running_jobs",
    "running_nodes",
    *_percentiles("running_limit"),
    *_percentiles("running_wait"),
    *_percentiles("running_elapsed"),
)
"""Names of the columns; times in seconds."""


def summarise(snapshot: Snapshot, partition: str) -> NDArray[np.float32]:
    """The queue of one partition (empty: of the whole cluster), shape (len(COLUMNS),)."""
    pending, running = (_within(jobs, snapshot, partition) for jobs in (snapshot.pending, snapshot.running))
    now = snapshot.time
    values = [
        *_counted(pending),
        *_spread(pending.limit),
        *_spread(now - pending.submit),
        *_counted(running),
        *_spread(running.limit),
        *_spread(running.start - running.submit),
        *_spread(now - running.start),
    ]
    return np.array(values, dtype=np.float32)


def _within(jobs: JobColumns, snapshot: Snapshot, partition: str) -> JobColumns:
    if not partition:
        return jobs
    if partition not in snapshot.partition_names:
        return type(jobs).none()
    return jobs.take(np.flatnonzero(jobs.partition == snapshot.partition_names.index(partition)))


def _counted(jobs: JobColumns) -> tuple[float, float]:
    return float(len(jobs)), float(jobs.nodes.sum())


def _spread(values: NDArray[np.int64]) -> list[float]:
    """Percentiles; zeros where there are no jobs."""
    if not len(values):
        return [0.0] * len(_LEVELS)
    found: list[float] = np.percentile(values, _LEVELS).tolist()
    return found

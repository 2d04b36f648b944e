"""A queue as numbers: one snapshot, and the last day of every partition at regular intervals.

Every feature schema chooses its columns from these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import Window

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import JobColumns, Snapshot

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

_LEVELS = (0, 25, 50, 75, 100)
_FRACTIONS = np.array(_LEVELS) / 100

FREED_WITHIN = (1, 2, 4, 8, 12, 24, 48)
"""Hours, ascending: nodes are counted whose jobs' limits end by then."""

_FREED_SECONDS = np.array(FREED_WITHIN) * 3_600


def percentiles(what: str) -> tuple[str, ...]:
    """Names of the five percentiles of something, least to greatest."""
    return tuple(f"{what}_p{level}" for level in _LEVELS)


COLUMNS = (
    "pending_jobs",
    "pending_nodes",
    *percentiles("pending_limit"),
    *percentiles("pending_age"),
    *percentiles("pending_size"),
    *percentiles("pending_priority"),
    "pending_users",
    "pending_largest_share",
    "eligible_jobs",
    "eligible_nodes",
    "eligible_node_seconds",
    "running_jobs",
    "running_nodes",
    *percentiles("running_limit"),
    *percentiles("running_wait"),
    *percentiles("running_elapsed"),
    *percentiles("running_size"),
    "running_users",
    "running_largest_share",
    *(f"freed_{hours}h" for hours in FREED_WITHIN),
    "total_nodes",
    "idle_nodes",
    "allocated_nodes",
    "down_nodes",
)
"""Names of the columns; times in seconds.

``..._size`` is nodes of a job; ``..._largest_share`` the share of nodes that belongs to the user with most;
``eligible_...`` jobs that are pending only because of the queue, node-seconds by their limits;
``freed_2h`` the nodes of running jobs whose limits end within two hours. All are 0 where there are no jobs.
"""


def summarise(snapshot: Snapshot, partition: str) -> NDArray[np.float32]:
    """The queue of one partition (empty: of the whole cluster), shape (len(COLUMNS),).

    In the whole cluster a node counts once for each of its partitions.
    """
    pending, running = (within(jobs, snapshot, partition) for jobs in (snapshot.pending, snapshot.running))
    now = snapshot.time
    return np.concatenate(
        [
            (len(pending), pending.nodes.sum()),
            _spread(pending.limit, now - pending.submit, pending.nodes, pending.priority),
            _by_user(pending),
            _eligible(pending, now),
            (len(running), running.nodes.sum()),
            _spread(running.limit, running.start - running.submit, now - running.start, running.nodes),
            _by_user(running),
            freed(running, now, _FREED_SECONDS),
            node_counts(snapshot, partition),
        ],
        dtype=np.float32,
    )


def within(jobs: JobColumns, snapshot: Snapshot, partition: str) -> JobColumns:
    """The jobs of a partition; empty: all of them."""
    if not partition:
        return jobs
    if partition not in snapshot.partition_names:
        return type(jobs).none()
    members = jobs.partition == snapshot.partition_names.index(partition)
    return jobs if members.all() else jobs.take(np.flatnonzero(members))


def node_counts(snapshot: Snapshot, partition: str) -> tuple[int, int, int, int]:
    """(total, idle, allocated, down) nodes of a partition; empty: of all, one after the other."""
    chosen = [state for state in snapshot.partitions if partition in {"", state.name}]
    return (
        sum(state.total for state in chosen),
        sum(state.idle for state in chosen),
        sum(state.allocated for state in chosen),
        sum(state.down for state in chosen),
    )


def freed(running: JobColumns, now: int, ahead: Int64) -> Float64:
    """Nodes of the jobs whose limits end within each of these spans from ``now`` (seconds, ascending)."""
    place = np.searchsorted(ahead, running.start + running.limit - now)
    nodes = np.bincount(place, weights=running.nodes, minlength=len(ahead) + 1)
    return np.asarray(np.cumsum(nodes)[: len(ahead)], dtype=np.float64)


def _spread(*columns: Int64) -> Float64:
    """Percentiles of each column, linear between the order statistics; zeros for no jobs.

    By a partial sort each: whole sorts take several times as long.
    """
    count = len(columns[0])
    found = np.zeros((len(columns), len(_LEVELS)))
    if not count:
        return found.ravel()
    place = _FRACTIONS * (count - 1)
    low = place.astype(np.int64)
    high = np.minimum(low + 1, count - 1)
    both = np.concatenate([low, high])
    for row, column in zip(found, columns, strict=True):
        ordered = np.partition(column, both)
        row[:] = ordered[low] + (place - low) * (ordered[high] - ordered[low])
    return found.ravel()


def _by_user(jobs: JobColumns) -> tuple[float, float]:
    """(users, share of the nodes that is the largest user's)."""
    if not len(jobs):
        return 0.0, 0.0
    user = jobs.user - jobs.user.min()
    nodes = np.bincount(user, weights=jobs.nodes)
    return float(np.count_nonzero(np.bincount(user))), float(nodes.max() / max(nodes.sum(), 1.0))


def _eligible(pending: JobColumns, now: int) -> tuple[float, float, float]:
    """(jobs, nodes, node-seconds) that wait for nothing but their turn."""
    ready = pending.eligible <= now
    nodes = pending.nodes[ready]
    return float(len(nodes)), float(nodes.sum()), float(nodes @ pending.limit[ready])


SPACING: Seconds = 600
"""Between two rows; the paper's."""

LENGTH = 144
"""Rows kept: 24 hours; the paper's."""


class QueueWindows:
    """Fed with snapshots as they come; keeps one in ``SPACING`` seconds."""

    def __init__(self) -> None:
        self._of: dict[str, Window] = {}
        self._next: Seconds | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Take a snapshot into account; nothing happens if it is stale, shows no queue or comes too soon."""
        if snapshot.stale or not snapshot.partitions:
            return
        if self._next is not None and snapshot.time < self._next:
            return
        # On the grid where it can be kept: intervals with jitter must not add up to longer spacing.
        self._next = (snapshot.time // SPACING + 1) * SPACING
        for name in ("", *(partition.name for partition in snapshot.partitions)):
            self._of[name] = _longer(self._of.get(name), snapshot, name)

    def of(self, partition: str) -> Window | None:
        """Return the window of a partition (empty: of the whole cluster), or ``None``."""
        return self._of.get(partition)

    def copy(self) -> QueueWindows:
        """An independent copy."""
        twin = QueueWindows()
        twin._next = self._next
        twin._of = dict(self._of)
        return twin


def _longer(known: Window | None, snapshot: Snapshot, partition: str) -> Window:
    """A new window with a row more; windows given away never change."""
    time, row = np.array([snapshot.time]), summarise(snapshot, partition)[None]
    if known is None:
        return Window(time, row)
    kept = slice(1 - LENGTH, None)
    return Window(np.concatenate([known.times[kept], time]), np.concatenate([known.rows[kept], row]))

"""Result of reading a task trace: tasks, pool, and counts of omitted rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from mirage.domain.pool import Pool
    from mirage.domain.task import TaskTable


Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TaskTrace:
    """``rows`` = tasks + omitted rows."""

    source: str
    tasks: TaskTable
    pool: Pool
    rows: int
    left_out: tuple[tuple[str, int], ...] = ()
    """Reasons why rows did not become tasks, with counts."""

    def keep(self, mask: Mask, why: str) -> TaskTrace:
        """Remove the tasks outside the mask. Raises ``TraceError`` where none is left."""
        lost = int((~mask).sum())
        if not lost:
            return self
        left_out = (*self.left_out, (why, lost))
        if lost == len(self.tasks):
            told = "; ".join(f"{count} {reason}" for reason, count in left_out)
            raise TraceError(self.source, 0, "", f"none of its {self.rows} rows is a task for this pool: {told}")
        return replace(self, tasks=self.tasks.take(mask), left_out=left_out)


def playable(trace: TaskTrace) -> TaskTrace:
    """Only tasks that can run to an end: their run time is known, and they fit into the empty pool."""
    known = trace.keep(trace.tasks.work > 0, "without a run time above 0")
    return known.keep(fitting(known.tasks, known.pool), "that do not fit into the empty pool")


def fitting(tasks: TaskTable, pool: Pool) -> Mask:
    """[T] Whether each task alone fits."""
    shapes = np.stack(
        [tasks.devices, tasks.max_nodes, tasks.cpus, tasks.memory_mb, tasks.kinds.view(np.int64)], axis=1
    )
    distinct, which = np.unique(shapes, axis=0, return_inverse=True)
    fits: Mask = np.array([_fits(*shape, pool=pool) for shape in distinct.tolist()], dtype=bool)
    return fits[which.ravel()]


def _fits(devices: int, max_nodes: int, cpus: int, memory_mb: int, kinds: int, *, pool: Pool) -> bool:
    if not devices:
        return bool(((pool.cpus >= cpus) & (pool.memory_mb >= memory_mb)).any())
    allowed = np.array([kinds >> int(kind) & 1 for kind in pool.device_kind])
    room = np.bincount(pool.device_node, weights=allowed, minlength=len(pool.node_names)).astype(np.int64)
    for need, held in ((cpus, pool.cpus), (memory_mb, pool.memory_mb)):
        if need:  # a part with k of n devices needs k/n of it, rounded up
            room = np.minimum(room, held.astype(np.int64) * devices // need)
    return int(np.sort(room)[::-1][:max_nodes].sum()) >= devices


def fewest_nodes(devices: NDArray[np.int64], pool: Pool) -> NDArray[np.int64]:
    """Number of the pool's largest nodes that have this many devices."""
    return np.maximum(1, -(-devices // int(np.bincount(pool.device_node).max())))

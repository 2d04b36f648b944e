"""Result of reading a task trace: the table of tasks, built from the columns of a source, the pool, counts of
omissions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import TraceError
from mirage.domain.jobtable import Names
from mirage.domain.pool import ANY_KIND, TaskTable

if TYPE_CHECKING:
    from mirage.domain.pool import Pool

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


def task_table(name: tuple[str, ...], **columns: Any) -> TaskTable:
    """A table by order of submission (ties as given), with ``TaskTable``'s columns as far as given.

    A column may be one value for all tasks. Defaults: submitted at 0, one whole device of any kind, as many nodes
    as devices, no CPUs and memory, unknown work, no estimate but the work, no checkpoint, no deadline, no model,
    no tenant.
    """
    count = len(name)
    devices = _column(columns.get("devices", 1), np.int32, count)
    work = _column(columns.get("work", np.nan), np.float64, count)
    table = TaskTable(
        name=name,
        submit=_column(columns.get("submit", 0.0), np.float64, count),
        devices=devices,
        share=_column(columns.get("share", 1.0), np.float64, count),
        kinds=_column(columns.get("kinds", ANY_KIND), np.uint64, count),
        max_nodes=_column(columns.get("max_nodes", np.maximum(devices, 1)), np.int32, count),
        cpus=_column(columns.get("cpus", 0), np.int32, count),
        memory_mb=_column(columns.get("memory_mb", 0), np.int64, count),
        work=work,
        expected=_column(columns.get("expected", work), np.float64, count),
        restart=_column(columns.get("restart", np.nan), np.float64, count),
        deadline=_column(columns.get("deadline", np.nan), np.float64, count),
        model=_names(columns.get("model"), count),
        tenant=_names(columns.get("tenant"), count),
    )
    return table.take(np.argsort(table.submit, kind="stable"))


def _column(values: Any, dtype: type[np.generic], count: int) -> Any:
    return np.broadcast_to(np.asarray(values, dtype=dtype), (count,)).copy()


def _names(values: Any, count: int) -> Names:
    if values is None:
        return Names.absent(count)
    return values if isinstance(values, Names) else Names.encode([str(value) for value in values])

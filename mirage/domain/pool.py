"""The tasks of an allocation, its nodes and devices, and their state at one time, as columns.

Ordering policies and placement policies see tasks and pool in this form.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.jobtable import Names

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]

ANY_KIND = np.uint64(2**64 - 1)
"""A mask of device kinds that lets all of them do."""


@dataclass(frozen=True, slots=True)
class TaskTable:
    """Tasks as columns of equal length; a task's row is its number everywhere.

    Times are seconds from the table's own zero (the engine's start, the trace's first time). NaN means not
    known or none. Needs are the whole task's: a part with k of its n devices needs k/n of its CPUs and
    memory, rounded up.
    """

    name: tuple[str, ...]
    """Unique; as the user calls it."""
    submit: Float64
    devices: Int32
    """Devices needed at the same time (a gang); 0 for a task that needs only CPUs."""
    share: Float64
    """Of each device, in (0, 1]; below 1 only where ``devices`` is 1."""
    kinds: UInt64
    """Bit k is set where a device of kind k (``Pool.kinds``) will do."""
    max_nodes: Int32
    """Over how many nodes the devices may be spread; 1 for a task that cannot be divided."""
    cpus: Int32
    memory_mb: Int64
    work: Float64
    """True seconds of running at reference speed; NaN in a real allocation, where it is unknown."""
    expected: Float64
    """Seconds of running at reference speed as estimated; NaN where nothing is known."""
    restart: Float64
    """Seconds lost at each resumption; NaN where the task has no checkpoint and is never preempted."""
    deadline: Float64
    model: Names
    """Class of the network, by which its speed is looked up; empty: unknown."""
    tenant: Names
    after: tuple[tuple[int, ...], ...] = ()
    """Rows of the tasks that must have succeeded before; empty where nothing depends on anything."""

    def __len__(self) -> int:
        return len(self.name)

    def take(self, rows: NDArray[Any]) -> Self:
        """Some of the rows, in that order. Raises ``ValueError`` where dependencies would point to nothing."""
        if any(self.after):
            raise ValueError("rows of a table with dependencies cannot be taken alone")
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        names = tuple(self.name[row] for row in np.arange(len(self))[rows])
        taken = {
            key: column.take(rows) if hasattr(column, "vocabulary") else column[rows]
            for key, column in columns.items()
            if key not in ("name", "after")
        }
        return type(self)(name=names, **taken)


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes (N) and their devices (D). Devices are sorted by node, then by index on it."""

    node_names: tuple[str, ...]
    cpus: Int32
    """[N]"""
    memory_mb: Int64
    """[N]"""
    switch: Int32
    """[N] The group of nodes below one switch."""
    device_node: Int32
    """[D] Row of the node."""
    device_index: Int32
    """[D] The index on the node, as ``CUDA_VISIBLE_DEVICES`` counts."""
    device_kind: Int32
    """[D] Row of ``kinds``."""
    island: Int32
    """[D] Devices of one number are joined by fast links (NVLink); numbers are unique over all nodes."""
    kinds: tuple[str, ...]
    """[K] At most 64."""
    price: Float64
    """[K] Dollars for one device and hour."""

    @property
    def first_device(self) -> Int32:
        """[N + 1] Where each node's devices begin."""
        return np.searchsorted(self.device_node, np.arange(len(self.node_names) + 1)).astype(np.int32)


@dataclass(frozen=True, slots=True)
class SpeedTable:
    """How fast tasks run where they are placed. Rows (R) are (model, devices, spread, kind) as far as measured.

    A task's speed is ``alone[r]`` times ``together[r, s]`` for each other task s with devices on one of its nodes,
    where r and s are their rows; 1 is the reference speed by which ``TaskTable.work`` counts.
    """

    row: NDArray[np.int32]
    """[T, K, S] The row of a task on kind k spread over s + 1 nodes; the last column serves for more than S."""
    alone: Float64
    """[R]"""
    together: Float64
    """[R, R] What remains of a row's speed next to another; ones where nothing is known."""

    @property
    def interferes(self) -> bool:
        """Whether neighbours matter at all."""
        return bool((self.together != 1.0).any())


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices and CPUs on which one task starts."""

    task: int
    devices: Int32
    """Rows of the pool's devices, ascending; empty for a task of CPUs alone."""
    nodes: Int32
    """Rows of its nodes, ascending and distinct."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """The pool as ordering and placement policies see it at one time.

    Arrays are borrowed: read them, keep none, change none."""

    now: float
    pool: Pool
    tasks: TaskTable
    speeds: SpeedTable
    pending: Int32
    """[P] Rows of the tasks that may start, in order of submission."""
    running: Int32
    """[R] Rows of the tasks that run."""
    held_from: Int32
    """[T + 1] Where the devices of each task begin in ``held``; equal neighbours for those that do not run."""
    held: Int32
    """Rows of the devices that running tasks hold."""
    task_node: Int32
    """[T] The first node of a running task; -1 for the others."""
    free: Float64
    """[D] The share of each device that is free; 0 on nodes that are down."""
    free_cpus: Int32
    """[N]"""
    free_memory_mb: Int64
    """[N]"""
    served: Float64
    """[T] Seconds that each task has run so far."""
    remaining: Float64
    """[T] Seconds at reference speed that are estimated to be left; NaN where nothing is known."""

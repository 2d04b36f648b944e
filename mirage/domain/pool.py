"""The nodes and devices of an allocation, and their state at one time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.task import TaskTable

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


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

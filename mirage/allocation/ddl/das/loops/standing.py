"""How pool and tasks stand, as the compiled loops of the agents read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.pool import PoolView

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]

UNKNOWN = 3600.0
"""Seconds for which a task is taken of which nothing is known, where nothing is known of any other."""
SLOWEST = 1e-3
"""The least speed that is estimated: a table's zero would make times without end."""


class Demands(NamedTuple):
    """What each task asks for, [T]."""

    devices: Int32
    share: Float64
    kinds: UInt64
    max_nodes: Int32
    cpus: Int32
    memory_mb: Int64
    left: Float64
    """Seconds at reference speed that are estimated to be left; never NaN."""


class Machines(NamedTuple):
    """Nodes and devices, and what of them is free."""

    first_device: Int32
    """[N + 1]"""
    device_kind: Int32
    island: Int32
    free: Float64
    cpus: Int32
    memory_mb: Int64


class Speeds(NamedTuple):
    """A ``SpeedTable`` in logarithms."""

    row: Int32
    """[T, K, S]"""
    alone: Float64
    together: Float64
    slower: Float64
    """[R, R] How many times longer a row takes next to another; no logarithm."""


class Holdings(NamedTuple):
    """Who runs where."""

    running: Int32
    held_from: Int32
    held: Int32
    device_node: Int32


class Standing(NamedTuple):
    """One instant."""

    demands: Demands
    machines: Machines
    speeds: Speeds
    holdings: Holdings
    pressure: float
    """Tasks that wait, for each device of the pool: how many are held up by a device that is held on to."""


def standing_of(view: PoolView) -> Standing:
    """The view's arrays; nothing is copied but what has to be made finite."""
    tasks, pool, speeds = view.tasks, view.pool, view.speeds
    demands = Demands(
        tasks.devices,
        tasks.share,
        tasks.kinds,
        tasks.max_nodes,
        tasks.cpus,
        tasks.memory_mb,
        _known(view.remaining),
    )
    machines = Machines(
        pool.first_device, pool.device_kind, pool.island, view.free, view.free_cpus, view.free_memory_mb
    )
    together = np.maximum(speeds.together, SLOWEST)
    alone = np.log(np.maximum(speeds.alone, SLOWEST))
    logarithms = Speeds(speeds.row, alone, np.log(together), 1.0 / together)
    holdings = Holdings(view.running, view.held_from, view.held, pool.device_node)
    return Standing(demands, machines, logarithms, holdings, len(view.pending) / max(len(pool.device_node), 1))


def _known(remaining: Float64) -> Float64:
    """Seconds, never NaN: a task of which nothing is known is taken for one in the middle of the others."""
    known = np.isfinite(remaining)
    middle = float(np.median(remaining[known])) if known.any() else UNKNOWN
    return np.maximum(np.where(known, remaining, middle), 1.0)

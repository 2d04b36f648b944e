"""The observation of the agents, and the way from their scores and affinities to placements.

Training and use share both. An observation has features of tasks, machines, and pairs of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.kernel.das_assigning import assign
from mirage.allocation.ddl.kernel.das_seeing import (
    NODE,
    PAIR,
    Crowd,
    PoolInstant,
    crowd_of,
    see,
    see_nodes,
    standing_of,
)
from mirage.domain.pool import Placement

if TYPE_CHECKING:
    from mirage.domain.pool import PoolView

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

ROOM = 7
"""Column of ``PAIR``: the part of the task that has room on a machine."""


def with_room(sight: DasObservation, order: NDArray[np.integer], most: int) -> Int64:
    """The first ``most`` of the observation's rows ``order`` that fit somewhere now, each considered alone.

    A task that does not fit now will not fit after others have started, so none of the relevant tasks is missed.
    """
    needed = np.maximum(sight.standing.demands.devices[sight.rows[order]], 1)
    parts = np.rint(sight.pair[order, :, ROOM] * needed[:, None])
    limits = sight.standing.demands.max_nodes[sight.rows[order]]
    widest = np.where(np.arange(parts.shape[1]) < limits[:, None], -np.sort(-parts, axis=1), 0)
    alone = sight.standing.demands.devices[sight.rows[order]] == 0
    return np.asarray(order[alone | (widest.sum(axis=1) >= needed)][:most], dtype=np.int64)


class Settling:
    """Places tasks one after the other; the arrays of the observation stay unchanged."""

    def __init__(self, sight: DasObservation) -> None:
        self._rows = sight.rows
        machines = sight.standing.machines
        machines = machines._replace(
            free=machines.free.copy(), cpus=machines.cpus.copy(), memory_mb=machines.memory_mb.copy()
        )
        self._standing = sight.standing._replace(machines=machines)
        self._crowd = Crowd._make(part.copy() for part in sight.crowd)

    @property
    def full(self) -> bool:
        """Whether no device has room."""
        return bool(self._standing.machines.free.max(initial=0.0) <= 0.0)

    def add(
        self, chosen: NDArray[np.integer], affinity: Float64, patience: Float64, *, strict: bool = False
    ) -> tuple[Placement, ...]:
        """Places for the observation's rows ``chosen``, in this order."""
        order = self._rows[chosen].astype(np.int32)
        standing = self._standing
        ends, devices, first, self._crowd = assign(standing, self._crowd, order, affinity, patience, strict)
        found, begun = [], 0
        for task, end, node in zip(order, ends, first, strict=True):
            if node >= 0:
                taken = devices[begun:end]
                nodes = np.unique(standing.holdings.device_node[taken]) if len(taken) else np.array([node])
                found.append(Placement(int(task), taken, nodes.astype(np.int32)))
            begun = end
        return tuple(found)


Float32 = NDArray[np.float32]

TASK = (
    "left",
    "left_by_others",
    "devices",
    "part_of_pool",
    "share",
    "rank_left",
    "rank_area",
    "waited",
    "best_utility",
    "best_speed",
    "rooms",
    "suffers",
    "harms",
    "pending",
    "known",
    "runs",
)
"""Columns of ``DasObservation.task``."""
HISTORY = 16
"""Most running tasks that serve as history: those that began last."""

SCHEMA = "das-v3"
SCHEMA_HASH = sha256("|".join((SCHEMA, *TASK, *NODE, *PAIR, str(HISTORY))).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class DasObservation:
    """The features at one time. Rows of tasks (J): pending ones in order of submission, then history."""

    rows: Int32
    """[J] Rows of the table of tasks."""
    waiting: int
    """Number of rows that are pending."""
    base: Float64
    """(J, 4): logarithms of seconds left at reference speed and devices, best utility, whether it fills a node."""
    task: Float32
    """[J, len(TASK)]"""
    node: Float32
    """[N, len(NODE)]"""
    pair: Float32
    """[J, N, len(PAIR)]"""
    held: Float64
    """[J - waiting, N] Share of each node in the machines of each history task: rows add up to 1."""
    felt: Float64
    """[J - waiting] Slowdown of history tasks so far against running alone: logarithms, less their mean."""
    switch: Int32
    """[N]"""
    standing: PoolInstant
    crowd: Crowd


class DasEncoder:
    """Builds one observation per time, though both agents request it one after the other."""

    def __init__(self) -> None:
        self._seen: tuple[PoolView, tuple[NDArray[Any], ...], DasObservation] | None = None

    def look(self, view: PoolView) -> DasObservation:
        """Features of the view. Its arrays are borrowed, so they are compared with the last ones too."""
        if self._seen is not None and self._seen[0] is view and self._unchanged(view, self._seen[1]):
            return self._seen[2]
        sight = sight_of(view)
        self._seen = view, tuple(array.copy() for array in self._moving(view)), sight
        return sight

    def _unchanged(self, view: PoolView, before: tuple[NDArray[Any], ...]) -> bool:
        return all(np.array_equal(*pair, equal_nan=True) for pair in zip(self._moving(view), before, strict=True))

    @staticmethod
    def _moving(view: PoolView) -> tuple[NDArray[Any], ...]:
        return view.pending, view.running, view.held, view.free, view.served, view.remaining


EYE = DasEncoder()
"""Shared by all agents of a process."""


def sight_of(view: PoolView) -> DasObservation:
    """Return the observation of a view."""
    standing = standing_of(view)
    crowd = crowd_of(standing)
    history = _history(view)
    waiting = len(view.pending)
    rows = np.concatenate([view.pending, history]).astype(np.int32)
    pair = see(standing, crowd, rows)
    unit = float(np.median(standing.demands.left[view.pending])) if waiting else 3600.0
    node = see_nodes(standing, crowd, unit)
    base = _base(standing, rows, pair)
    return DasObservation(
        rows,
        waiting,
        base,
        _tasks(view, standing, rows, pair, base).astype(np.float32),
        node.astype(np.float32),
        pair.astype(np.float32),
        _held(view, history),
        _felt(view, standing, crowd, history),
        view.pool.switch,
        standing,
        crowd,
    )


def _history(view: PoolView) -> Int32:
    holds = np.diff(view.held_from)[view.running] > 0
    running = view.running[holds]
    return running[np.argsort(view.served[running], kind="stable")[:HISTORY]]


def _base(standing: PoolInstant, rows: Int32, pair: Float64) -> Float64:
    demands = standing.demands
    utility = np.where(pair[:, :, 7] > 0, pair[:, :, 2], -4.0)
    best = utility.max(axis=1) if len(rows) else np.zeros(0)
    devices = np.maximum(demands.devices[rows] * demands.share[rows], 1e-2)
    fills = pair[:, :, 5].max(axis=1, initial=0.0)
    return np.stack([np.log(demands.left[rows]), np.log(devices), best, fills], axis=1)


def _tasks(view: PoolView, standing: PoolInstant, rows: Int32, pair: Float64, base: Float64) -> Float64:
    waiting, demands = len(view.pending), standing.demands
    left, devices = base[:, 0], base[:, 1]
    middle = np.median(left[:waiting]) if waiting else 8.0
    waited = np.maximum(view.now - view.tasks.submit[rows], 0.0)
    suffers, harms = _temper(standing, rows, waiting)
    pool = max(len(view.pool.device_node), 1)
    return np.stack(
        [
            (left - 8.0) / 2.0,
            (left - middle) / 2.0,
            devices / 2.0,
            demands.devices[rows] / pool,
            demands.share[rows],
            _ranks(left, waiting),
            _ranks(left + devices, waiting),
            waited / (waited + demands.left[rows]),
            base[:, 2],
            pair[:, :, 0].max(axis=1),
            pair[:, :, 3].mean(axis=1),
            suffers,
            harms,
            np.full(len(rows), np.log1p(waiting) / 5.0),
            np.isfinite(view.remaining[rows]),
            np.arange(len(rows)) >= waiting,
        ],
        axis=1,
    )


def _ranks(values: Float64, waiting: int) -> Float64:
    """Rank of each value among the pending, 0 to 1."""
    if not waiting:
        return np.zeros(len(values))
    return np.searchsorted(np.sort(values[:waiting]), values) / waiting


def _temper(standing: PoolInstant, rows: Int32, waiting: int) -> tuple[Float64, Float64]:
    """Mean logarithms of each task's slowdown next to the pending ones, and of theirs next to it."""
    narrow = standing.speeds.row[rows, 0, 0]
    others = np.bincount(narrow[:waiting] if waiting else narrow, minlength=len(standing.speeds.alone))
    weights = others / max(others.sum(), 1)
    together = standing.speeds.together
    return (together @ weights)[narrow], (weights @ together)[narrow]


def _held(view: PoolView, history: Int32) -> Float64:
    parts = np.zeros((len(history), len(view.pool.node_names)))
    for place, task in enumerate(history):
        nodes = view.pool.device_node[view.held[view.held_from[task] : view.held_from[task + 1]]]
        np.add.at(parts[place], nodes, 1.0 / len(nodes))
    return parts


def _felt(view: PoolView, standing: PoolInstant, crowd: Crowd, history: Int32) -> Float64:
    """Measured slowdown: work estimated at the start, less the work left now, by the time run.

    Where that is unknown, the table's value for the present neighbours.
    """
    believed = crowd.own[history] - standing.speeds.alone[crowd.row[history]]
    done = view.tasks.expected[history] - view.remaining[history]
    served = view.served[history]
    told = np.isfinite(done) & (done > 0) & (served > 0)
    rate = np.log(np.where(told, done, 1.0) / np.where(told, served, 1.0))
    felt = np.where(told, rate - standing.speeds.alone[crowd.row[history]], believed)
    felt = np.clip(felt, -3.0, 1.0)
    return felt - felt.mean() if len(felt) else felt

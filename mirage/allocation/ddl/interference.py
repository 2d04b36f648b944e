"""Placement by interference: where a task's speed, less the loss of its neighbours, is largest.

Neighbours and their speeds are from the table of speeds. The measure is what the task adds to the sum of all
speeds, so the best place for it by this measure is the best for the pool in its present state. The task is
spread over no more nodes than necessary: on more nodes it would meet more of the tasks still to come, which are
unknown. Equally good nodes are chosen by the least free room, as in best-fit.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirage.allocation.ddl.dispatch import SLACK, Vacancy
from mirage.domain.pool import Placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView


class Neighbours:
    """The tasks on each node; more can be added."""

    def __init__(self, view: PoolView, without: Iterable[int]) -> None:
        """The running tasks, except ``without``."""
        self._view = view
        self._on: list[list[int]] = [[] for _ in view.pool.node_names]
        self._row = np.zeros(len(view.tasks), dtype=np.int64)
        self._speed = np.ones(len(view.tasks))
        leaving = set(without)
        for task in view.running.tolist():
            if task not in leaving:
                devices = view.held[view.held_from[task] : view.held_from[task + 1]]
                self._enter(task, devices, self._nodes(task, devices))

    def gain(self, task: int, devices: NDArray[np.int32], nodes: Sequence[int]) -> float:
        """The speed that the task would have there, less the loss of all its neighbours."""
        row, together = self.row(task, devices, len(nodes)), self._view.speeds.together
        beside = self._beside(nodes)
        rows = self._row[beside]
        own = self._view.speeds.alone[row] * together[row, rows].prod()
        return float(own - (self._speed[beside] * (1.0 - together[rows, row])).sum())

    def add(self, placement: Placement) -> None:
        """Add a placed task to the tasks of its nodes."""
        self._enter(placement.task, placement.devices, placement.nodes.tolist())

    def row(self, task: int, devices: NDArray[np.int32], nodes: int) -> int:
        """The task's row in the table of speeds: over different kinds, the slowest."""
        kinds = np.unique(self._view.pool.device_kind[devices]) if len(devices) else np.zeros(1, dtype=np.int32)
        rows = self.rows(task, nodes)[kinds]
        return int(rows[np.argmin(self._view.speeds.alone[rows])])

    def rows(self, task: int, nodes: int) -> NDArray[np.int32]:
        """[K] The task's rows where it is spread over this number of nodes."""
        known = self._view.speeds.row
        return known[task, :, min(nodes, known.shape[2]) - 1]

    def _nodes(self, task: int, devices: NDArray[np.int32]) -> list[int]:
        if not len(devices):
            return [int(self._view.task_node[task])]
        return [int(node) for node in np.unique(self._view.pool.device_node[devices])]

    def _beside(self, nodes: Sequence[int]) -> list[int]:
        """The tasks on these nodes, each once."""
        return sorted({other for node in nodes for other in self._on[node]})

    def _enter(self, task: int, devices: NDArray[np.int32], nodes: Sequence[int]) -> None:
        row, together = self.row(task, devices, len(nodes)), self._view.speeds.together
        beside = self._beside(nodes)
        self._row[task] = row
        self._speed[task] = self._view.speeds.alone[row] * together[row, self._row[beside]].prod()
        self._speed[beside] *= together[self._row[beside], row]
        for node in nodes:
            self._on[node].append(task)


Nodes = tuple[int, ...]


class _Response(NamedTuple):
    """Candidate nodes of a task and their scores: the smallest is the best."""

    loss: float
    """Loss against running alone, rounded so that equal values compare equal."""
    free: float
    nodes: Nodes
    devices: NDArray[np.int32]

    @property
    def rank(self) -> tuple[float, float, Nodes]:
        return self.loss, self.free, self.nodes


class BestResponse:
    """The interference-aware placement policy.

    It finds the best node or, where several are needed, the fewest nodes, none of which can be exchanged for a
    better one. On a node a task gets the devices on which it is fastest.
    """

    name = "interference"

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        """See ``ports.Placer``."""
        vacancy, neighbours = Vacancy.of(view), Neighbours(view, order.tolist())
        placed: list[Placement] = []
        failed: set[tuple[float, ...]] = set()
        for task in order.tolist():
            needs = _needs(view, task)
            found = None if needs in failed else _Search(vacancy, neighbours, task).best()
            if found is not None:
                vacancy.move(task, found.devices, int(found.nodes[0]), -1)
                neighbours.add(found)
                placed.append(found)
            elif strict:
                break
            else:
                failed.add(needs)
        return tuple(placed)


def _needs(view: PoolView, task: int) -> tuple[float, ...]:
    """Everything that decides whether a task fits."""
    tasks = view.tasks
    columns = (tasks.devices, tasks.share, tasks.kinds, tasks.max_nodes, tasks.cpus, tasks.memory_mb)
    return tuple(column[task].item() for column in columns)


class _Search:
    """The best nodes for one task in the present state."""

    def __init__(self, vacancy: Vacancy, neighbours: Neighbours, task: int) -> None:
        self._view, self._vacancy, self._neighbours, self._task = vacancy.view, vacancy, neighbours, task
        tasks, pool = vacancy.view.tasks, vacancy.view.pool
        self._of, self._share = int(tasks.devices[task]), float(tasks.share[task])
        self._most = max(int(tasks.max_nodes[task]), 1) if self._of else 1
        allowed = (tasks.kinds[task] >> pool.device_kind.astype(np.uint64)) & np.uint64(1) == 1
        self._suits = allowed & (vacancy.free >= self._share - SLACK)
        count = len(pool.node_names)
        self._free = np.bincount(pool.device_node, vacancy.free, minlength=count)
        self._room = self._room_on(count)

    def best(self) -> Placement | None:
        """Place of the task; ``None`` if it fits nowhere."""
        starts = [(int(node),) for node in np.flatnonzero(self._room >= max(self._of, 1))] or self._roomiest()
        if not starts:
            return None
        found = self._improve(min(map(self._respond, starts), key=lambda one: one.rank))
        return Placement(self._task, found.devices, np.array(found.nodes, dtype=np.int32))

    def _room_on(self, count: int) -> NDArray[np.int64]:
        """[N] Number of the task's devices for which each node has room; 1 if a task without devices fits."""
        tasks, task, of = self._view.tasks, self._task, max(self._of, 1)
        devices = np.bincount(self._view.pool.device_node, self._suits, minlength=count).astype(np.int64)
        room = np.minimum(devices, of) if self._of else np.ones(count, dtype=np.int64)
        for free, need in ((self._vacancy.cpus, tasks.cpus[task]), (self._vacancy.memory, tasks.memory_mb[task])):
            if need > 0:
                room = np.minimum(room, np.maximum(free, 0) * of // int(need))
        return room

    def _roomiest(self) -> list[Nodes]:
        """The fewest nodes with room for all of it; empty if it does not fit."""
        order = np.argsort(-self._room, kind="stable")[: self._most]
        count = int(np.searchsorted(np.cumsum(self._room[order]), max(self._of, 1))) + 1
        return [tuple(sorted(order[:count].tolist()))] if count <= len(order) else []

    def _improve(self, found: _Response) -> _Response:
        """Exchange nodes while that improves the score."""
        while True:
            better = min(map(self._respond, self._beside(found.nodes)), key=lambda one: one.rank, default=found)
            if better.rank >= found.rank:
                return found
            found = better

    def _beside(self, nodes: Nodes) -> Iterator[Nodes]:
        """Sets of nodes that differ in one node and have room for all of the task."""
        others = [int(node) for node in np.flatnonzero(self._room) if int(node) not in nodes]
        for i, other in itertools.product(range(len(nodes)) if len(nodes) > 1 else (), others):
            some = tuple(sorted((*nodes[:i], *nodes[i + 1 :], other)))
            if self._room[list(some)].sum() >= self._of:
                yield some

    def _respond(self, nodes: Nodes) -> _Response:
        devices = self._devices(nodes)
        gain = self._neighbours.gain(self._task, devices, nodes)
        return _Response(round(-gain, 9), float(self._free[list(nodes)].sum()), nodes, devices)

    def _devices(self, nodes: Nodes) -> NDArray[np.int32]:
        """The task's devices on these nodes: as many as fit on the roomiest, at least one on each."""
        if not self._of:
            return np.zeros(0, dtype=np.int32)
        chosen, left = [], self._of
        order = sorted(nodes, key=lambda node: -self._room[node])
        for i, node in enumerate(order):
            count = min(int(self._room[node]), left - (len(order) - 1 - i))
            chosen.append(self._fastest(node, count, len(nodes)))
            left -= count
        return np.sort(np.concatenate(chosen)).astype(np.int32)

    def _fastest(self, node: int, count: int, spread: int) -> NDArray[np.int64]:
        """Devices of the node on which the task is fastest; of equals, those with the least room."""
        pool = self._view.pool
        devices = np.flatnonzero(self._suits & (pool.device_node == node))
        speed = self._view.speeds.alone[self._neighbours.rows(self._task, spread)][pool.device_kind[devices]]
        return devices[np.lexsort((devices, self._vacancy.free[devices], -speed))[:count]]

"""Neighbours of tasks and their speeds, from the table of speeds: for placement policies that consider the loss of
neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from mirage.domain.pool import Placement, PoolView


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

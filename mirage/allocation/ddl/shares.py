"""Resources that a task takes where it is placed, the rest, and the tasks there: for any placement
policy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView

SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Vacancy:
    """Free resources and running tasks, to be changed."""

    view: PoolView
    free: NDArray[np.float64]
    cpus: NDArray[np.int64]
    memory: NDArray[np.int64]
    moved: dict[int, tuple[NDArray[np.int32], int] | None] = field(default_factory=dict)
    """Tasks that are elsewhere than in the view, with devices and first node; ``None``: nowhere."""

    @classmethod
    def of(cls, view: PoolView) -> Self:
        """A copy of the view's state."""
        return cls(view, view.free.copy(), view.free_cpus.astype(np.int64), view.free_memory_mb.copy())

    def seen(self) -> PoolView:
        """The view as it would be with these free resources and these running tasks."""
        cpus = np.maximum(self.cpus, 0).astype(np.int32)
        view = replace(self.view, free=self.free, free_cpus=cpus, free_memory_mb=np.maximum(self.memory, 0))
        return self._peopled(view) if self.moved else view

    def _peopled(self, view: PoolView) -> PoolView:
        stay = [(task, self._held(task), int(view.task_node[task])) for task in view.running.tolist()]
        there = [one for one in stay if one[0] not in self.moved]
        there += [(task, *place) for task, place in self.moved.items() if place is not None]
        there.sort(key=lambda one: one[0])
        lengths, task_node = np.zeros(len(view.tasks) + 1, dtype=np.int32), np.full_like(view.task_node, -1)
        for task, devices, node in there:
            lengths[task + 1], task_node[task] = len(devices), node
        return replace(
            view,
            running=np.array([task for task, _, _ in there], dtype=np.int32),
            held_from=np.cumsum(lengths, dtype=np.int32),
            held=np.concatenate([np.zeros(0, dtype=np.int32), *(devices for _, devices, _ in there)]),
            task_node=task_node,
        )

    def _held(self, task: int) -> NDArray[np.int32]:
        return self.view.held[self.view.held_from[task] : self.view.held_from[task + 1]]

    def move(self, task: int, devices: NDArray[np.int32], node: int, sign: int) -> None:
        """Release (1) or take (-1) the resources of the task with these devices, or on ``node`` without any."""
        tasks = self.view.tasks
        self.moved[task] = (devices, node) if sign < 0 else None
        self.free[devices] += sign * tasks.share[task]
        nodes, counts = np.unique(self.view.pool.device_node[devices], return_counts=True)
        if not len(devices):
            nodes, counts = np.array([node]), np.array([1])
        of = max(int(tasks.devices[task]), 1)
        self.cpus[nodes] += sign * -(-int(tasks.cpus[task]) * counts // of)
        self.memory[nodes] += sign * -(-int(tasks.memory_mb[task]) * counts // of)

    def overdrawn(self, devices: NDArray[np.int32], node: int) -> bool:
        """Whether more is taken than exists, on these devices or their nodes."""
        nodes = np.unique(self.view.pool.device_node[devices]) if len(devices) else np.array([node])
        return bool(
            (self.free[devices] < -SLACK).any() or (self.cpus[nodes] < 0).any() or (self.memory[nodes] < 0).any()
        )

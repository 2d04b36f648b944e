"""What a task takes of a pool where it is placed, and what is left of it then: plain arrays, for any placer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView

SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Vacancy:
    """What is free, to be changed."""

    view: PoolView
    free: NDArray[np.float64]
    cpus: NDArray[np.int64]
    memory: NDArray[np.int64]

    @classmethod
    def of(cls, view: PoolView) -> Self:
        """As the view has it."""
        return cls(view, view.free.copy(), view.free_cpus.astype(np.int64), view.free_memory_mb.copy())

    def seen(self) -> PoolView:
        """The view with this free instead."""
        cpus = np.maximum(self.cpus, 0).astype(np.int32)
        return replace(self.view, free=self.free, free_cpus=cpus, free_memory_mb=np.maximum(self.memory, 0))

    def move(self, task: int, devices: NDArray[np.int32], node: int, sign: int) -> None:
        """Give back (1) or take (-1) what the task has with these devices, or on ``node`` without any."""
        tasks = self.view.tasks
        self.free[devices] += sign * tasks.share[task]
        nodes, counts = np.unique(self.view.pool.device_node[devices], return_counts=True)
        if not len(devices):
            nodes, counts = np.array([node]), np.array([1])
        of = max(int(tasks.devices[task]), 1)
        self.cpus[nodes] += sign * -(-int(tasks.cpus[task]) * counts // of)
        self.memory[nodes] += sign * -(-int(tasks.memory_mb[task]) * counts // of)

    def overdrawn(self, devices: NDArray[np.int32], node: int) -> bool:
        """Whether more is taken than there is, on these devices or their nodes."""
        nodes = np.unique(self.view.pool.device_node[devices]) if len(devices) else np.array([node])
        return bool(
            (self.free[devices] < -SLACK).any() or (self.cpus[nodes] < 0).any() or (self.memory[nodes] < 0).any()
        )

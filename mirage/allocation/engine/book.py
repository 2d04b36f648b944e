"""The allocation table: which task holds which devices, CPUs and memory of this link's pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.engine.demands import part_of
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirage.allocation.engine.plan import TaskSpec
    from mirage.domain.pool import Placement, Pool

_SLACK = 1e-9


class Oversubscribed(MirageError):
    """A placement takes what another task holds; it is not applied."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one running task holds."""

    row: int
    devices: tuple[int, ...]
    """Rows of the pool's devices."""
    share: float
    needs: tuple[tuple[int, int, int], ...]
    """Node, CPUs and megabytes."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Rows of the nodes that it uses."""
        return tuple(node for node, _, _ in self.needs)


@dataclass(slots=True)
class Book:
    """The devices of the pool and their holders. Every change is checked against what is free."""

    pool: Pool
    holdings: dict[int, Holding] = field(default_factory=dict)
    """By row of the task."""
    aside: set[int] = field(default_factory=set)
    """Nodes on which no task may start."""

    def take(self, task: TaskSpec, placement: Placement) -> Holding:
        """Allocate a placement. Raises ``Oversubscribed`` without a change where it does not fit."""
        holding = self._holding(task, placement)
        if said := self._conflict(task, holding):
            raise Oversubscribed(f"task {task.name} cannot be placed there: {said}")
        self.holdings[holding.row] = holding
        return holding

    def adopt(self, row: int, task: TaskSpec, parts: Mapping[str, Sequence[int]], share: float) -> None:
        """Record a step that already runs; devices outside this pool are ignored."""
        names = self.pool.node_names
        nodes = [names.index(name) for name in parts if name in names]
        devices = [device for node in nodes for device in self._rows(node, parts[names[node]])]
        needs = tuple((node, *part_of(task, len(parts[names[node]]))) for node in nodes)
        self.holdings[row] = Holding(row, tuple(sorted(devices)), share, needs)

    def _rows(self, node: int, indices: Sequence[int]) -> list[int]:
        here = (self.pool.device_node == node) & np.isin(self.pool.device_index, list(indices))
        return [int(row) for row in np.flatnonzero(here)]

    def without(self, rows: Collection[int]) -> Book:
        """A copy in which these tasks hold nothing."""
        left = {row: holding for row, holding in self.holdings.items() if row not in rows}
        return Book(self.pool, left, set(self.aside))

    def release(self, row: int) -> None:
        """Free what a task holds."""
        self.holdings.pop(row, None)

    def free_devices(self) -> np.ndarray:
        """[D] The share of each device that is free; 0 on nodes put aside."""
        free = np.ones(len(self.pool.device_node))
        for holding in self.holdings.values():
            free[list(holding.devices)] -= holding.share
        free[np.abs(free) < _SLACK] = 0.0
        free[np.isin(self.pool.device_node, list(self.aside))] = 0.0
        return free

    def free_nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """[N] CPUs and megabytes that are free; 0 on nodes put aside."""
        cpus, memory = self.pool.cpus.astype(np.int32), self.pool.memory_mb.astype(np.int64)
        for holding in self.holdings.values():
            for node, taken_cpus, taken_memory in holding.needs:
                cpus[node] -= taken_cpus
                memory[node] -= taken_memory
        cpus[list(self.aside)], memory[list(self.aside)] = 0, 0
        return cpus, memory

    def parts(self, holding: Holding) -> dict[str, list[int]]:
        """Indices of its devices on each of its nodes, as the journal records them."""
        pool = self.pool
        return {
            pool.node_names[node]: [
                int(pool.device_index[row]) for row in holding.devices if pool.device_node[row] == node
            ]
            for node in holding.nodes
        }

    def _holding(self, task: TaskSpec, placement: Placement) -> Holding:
        devices = tuple(int(row) for row in placement.devices)
        owners = self.pool.device_node[list(devices)]
        counts = {int(node): int((owners == node).sum()) for node in placement.nodes}
        needs = tuple((node, *part_of(task, count)) for node, count in counts.items())
        return Holding(int(placement.task), devices, task.share, needs)

    def _conflict(self, task: TaskSpec, holding: Holding) -> str:
        """Why a holding cannot be allocated; empty where it can."""
        if holding.row in self.holdings:
            return "it already runs"
        if len(set(holding.devices)) != task.devices or not holding.needs:
            got = f"{len(set(holding.devices))} devices on {len(holding.needs)} nodes"
            return f"it gets {got}, and needs {task.devices}"
        if sum(count for count in self._counts(holding).values()) != len(holding.devices):
            return "devices on nodes that are not named"
        free, (cpus, memory) = self.free_devices(), self.free_nodes()
        taken = [row for row in holding.devices if free[row] < holding.share - _SLACK]
        if taken:
            return f"device {self.pool.device_index[taken[0]]} of {self._name(taken[0])} is taken"
        short = [node for node, c, m in holding.needs if node in self.aside or c > cpus[node] or m > memory[node]]
        return f"{self.pool.node_names[short[0]]} has no CPUs or memory left for it" if short else ""

    def _counts(self, holding: Holding) -> dict[int, int]:
        owners = [int(self.pool.device_node[row]) for row in holding.devices]
        return {node: owners.count(node) for node in holding.nodes}

    def _name(self, device: int) -> str:
        return self.pool.node_names[int(self.pool.device_node[device])]

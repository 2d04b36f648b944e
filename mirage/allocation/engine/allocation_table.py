"""What this link's pool can grant, and the allocation table: which task holds which devices, CPUs and memory.

What the pool can never grant is rejected before any task runs, as the table that policies read is built.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.estimation import NOTHING, spread_counted
from mirage.domain.errors import ConfigError, MirageError
from mirage.domain.jobtable import Names
from mirage.domain.pool import ANY_KIND, SpeedTable, TaskTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mirage.allocation.ddl.speeds import Measurements
    from mirage.allocation.engine.plan import TaskSpec, WorkPlan
    from mirage.domain.pool import Placement, Pool

_WORD = re.compile(r"[a-z0-9]+")


def check_demands(plan: WorkPlan, pool: Pool, length: float, parts: bool = True) -> None:
    """Raise ``ConfigError`` with every task that this pool can never run.

    ``length``: seconds of one link. ``parts``: whether a task may be spread over nodes.
    """
    problems = [f"task {task.name!r}: {said}" for task in plan.tasks for said in _problems(task, pool, length)]
    if problems:
        shown = problems[:40] + ([f"and {len(problems) - 40} more"] if len(problems) > 40 else [])
        raise ConfigError(str(plan.source), "tasks cannot run here\n  " + "\n  ".join(shown))


def _problems(task: TaskSpec, pool: Pool, length: float) -> Iterator[str]:
    unknown = [kind for kind in task.kinds if not any(means(kind, known) for known in pool.kinds)]
    if unknown and len(unknown) == len(task.kinds):
        yield f"kinds: {', '.join(unknown)} not found here (available: {', '.join(pool.kinds) or 'no devices'})"
    elif said := _shape(task, pool):
        yield said
    if task.expected is not None and task.checkpoint is None and task.expected > length:
        yield (
            f"expected: {task.expected:g} s exceed the {length:g} s of a link, and the task has no checkpoint"
            " from which the next link could continue"
        )
    if not task.after and not Path(task.directory).is_dir():
        yield f"directory: {task.directory} is no directory on this machine"


def _shape(task: TaskSpec, pool: Pool) -> str:
    """Why not even the empty pool has room for it; empty where it has."""
    usable = np.array([mask_bit(kind, task.kinds) for kind in pool.kinds], bool)
    fitting = np.bincount(pool.device_node, usable[pool.device_kind], len(pool.node_names)).astype(int)
    if task.devices == 0:
        enough = (pool.cpus >= task.cpus) & (pool.memory_mb >= task.memory_mb)
        return "" if enough.any() else f"no node has {task.cpus} CPUs and {task.memory_mb} MB"
    room = _room(task, pool, fitting)
    granted = int(np.sort(room)[::-1][: task.max_nodes].sum())
    if granted >= task.devices:
        return ""
    bare = int(np.sort(fitting)[::-1][: task.max_nodes].sum())
    where = "one node" if task.max_nodes == 1 else f"{task.max_nodes} nodes"
    if bare < task.devices:
        return f"devices: {task.devices} on {where}; at most {bare} suitable devices exist"
    beside = f"next to {task.devices} devices on {where}"
    return f"no room for {task.cpus} CPUs and {task.memory_mb} MB {beside}"


def _room(task: TaskSpec, pool: Pool, fitting: np.ndarray) -> np.ndarray:
    """Devices that each node can give, limited by CPUs and memory."""
    room = fitting.copy()
    for node in range(len(room)):
        while room[node] and not _affords(task, pool, node, int(room[node])):
            room[node] -= 1
    return room


def _affords(task: TaskSpec, pool: Pool, node: int, devices: int) -> bool:
    cpus, memory = part_of(task, devices)
    return bool(cpus <= pool.cpus[node] and memory <= pool.memory_mb[node])


def part_of(task: TaskSpec, devices: int) -> tuple[int, int]:
    """CPUs and megabytes of a part with this number of devices; all of them where the task has none."""
    if task.devices == 0:
        return task.cpus, task.memory_mb
    devices = min(devices, task.devices)
    return -(-task.cpus * devices // task.devices), -(-task.memory_mb * devices // task.devices)


def means(wanted: str, kind: str) -> bool:
    """Whether ``a100``, ``gpu`` and ``gpu:a100`` mean ``gpu:a100``; ``h100`` means ``gpu:nvidia-h100``."""
    wanted, kind = wanted.lower(), kind.lower()
    name, _, of = kind.partition(":")
    return wanted in (kind, name, of) or wanted in _WORD.findall(of)


def mask_bit(kind: str, wanted: tuple[str, ...]) -> bool:
    """Whether the task accepts a kind."""
    return not wanted or any(means(word, kind) for word in wanted)


def task_table(plan: WorkPlan, pool: Pool, zero: float) -> TaskTable:
    """The plan as columns; times count from ``zero``, epoch seconds."""
    tasks = plan.tasks
    return TaskTable(
        name=tuple(task.name for task in tasks),
        submit=np.zeros(len(tasks)),
        devices=np.array([task.devices for task in tasks], np.int32),
        share=np.array([task.share for task in tasks]),
        kinds=np.array([_mask(task, pool) for task in tasks], np.uint64),
        max_nodes=np.array([task.max_nodes for task in tasks], np.int32),
        cpus=np.array([task.cpus for task in tasks], np.int32),
        memory_mb=np.array([task.memory_mb for task in tasks], np.int64),
        work=np.full(len(tasks), np.nan),
        expected=np.array([_or_nan(task.expected) for task in tasks]),
        restart=np.array([task.checkpoint.restart if task.checkpoint else math.nan for task in tasks]),
        deadline=np.array([_deadline(task, zero) for task in tasks]),
        model=Names.encode([task.model for task in tasks]),
        tenant=Names.encode([task.tenant for task in tasks]),
        after=plan.after,
    )


def given_speeds(text: str, pool: Pool) -> Measurements:
    """A table of speeds measured elsewhere (``read_speeds``), by this pool's kinds; no table for "".

    Raises ``ConfigError`` and ``TraceError``.
    """
    if not text:
        return NOTHING
    from mirage.allocation.ddl.formats.readers import read_speeds

    measured = spread_counted(read_speeds(text), pool)
    here = {run.kind: _kind_here(run.kind, pool) for run in measured.runs}
    return replace(
        measured,
        runs=tuple(replace(run, kind=here[run.kind]) for run in measured.runs),
        reference_kind=here.get(measured.reference_kind, measured.reference_kind),
    )


def _kind_here(kind: str, pool: Pool) -> str:
    """This pool's name of a kind: tables have ``v100``, pools ``gpu:tesla-v100``."""
    return next((known for known in pool.kinds if kind and means(kind, known)), kind)


def nothing_known(tasks: int, kinds: int) -> SpeedTable:
    """A table in which every task runs at reference speed everywhere."""
    return SpeedTable(np.zeros((tasks, max(1, kinds), 1), np.int32), np.ones(1), np.ones((1, 1)))


def _mask(task: TaskSpec, pool: Pool) -> np.uint64:
    if not task.kinds:
        return ANY_KIND
    return np.uint64(sum(1 << row for row, kind in enumerate(pool.kinds) if mask_bit(kind, task.kinds)))


def _deadline(task: TaskSpec, zero: float) -> float:
    if task.deadline is None:
        return math.nan
    return task.deadline if task.deadline_relative else task.deadline - zero


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


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
class AllocationTable:
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

    def without(self, rows: Collection[int]) -> AllocationTable:
        """A copy in which these tasks hold nothing."""
        left = {row: holding for row, holding in self.holdings.items() if row not in rows}
        return AllocationTable(self.pool, left, set(self.aside))

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

"""The plan: tasks as their owner describes them, and their dependencies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class Ranks(StrEnum):
    """Number of processes of a task."""

    NODE = "node"
    """One process on each node, which sees all of its devices there: for launchers such as torchrun."""
    DEVICE = "device"
    """One process for each device; all on one node see the same devices and choose by their local rank."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Settings of a task that can be interrupted and continue from its last state."""

    signal: str = "USR1"
    """The signal upon which it saves and ends, such as ``USR1``."""
    grace: float = 120.0
    """Seconds allowed for saving; processes left after that are killed."""
    restart: float = 60.0
    """Seconds lost at each resumption."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task. Durations are seconds."""

    name: str
    command: tuple[str, ...]
    devices: int = 1
    share: float = 1.0
    """Share of its one device."""
    kinds: tuple[str, ...] = ()
    """Kinds of device that it accepts; empty: any."""
    max_nodes: int = 1
    ranks: Ranks = Ranks.NODE
    cpus: int = 1
    memory_mb: int = 0
    expected: float | None = None
    time_limit: float | None = None
    """An attempt that runs longer than this counts as hung: it is ended and has failed."""
    deadline: float | None = None
    """Epoch seconds; or seconds from the first start of the plan where ``deadline_relative``."""
    deadline_relative: bool = False
    model: str = ""
    tenant: str = ""
    after: tuple[str, ...] = ()
    retries: int = 0
    """Failures that are followed by another attempt."""
    checkpoint: Checkpoint | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "."
    output: str = ""
    """Output file; empty: a file of the state directory."""


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """All tasks of one file, in its order."""

    source: Path
    tasks: tuple[TaskSpec, ...]

    @property
    def rows(self) -> dict[str, int]:
        """Row of each task by its id."""
        return {task.name: row for row, task in enumerate(self.tasks)}

    @property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """Rows of the tasks that each one waits for."""
        rows = self.rows
        return tuple(tuple(rows[name] for name in task.after) for task in self.tasks)


def repeated(names: list[str]) -> Iterator[int]:
    """Positions of names that have come before."""
    seen = set[str]()
    for position, name in enumerate(names):
        if name in seen:
            yield position
        seen.add(name)


def find_cycles(after: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Groups of tasks that wait for each other in a cycle, each once, as a path along it."""
    finished, cycles = set[str](), list[tuple[str, ...]]()
    for name in after:
        _walk(name, after, finished, cycles)
    return cycles


def _walk(
    start: str, after: Mapping[str, tuple[str, ...]], finished: set[str], cycles: list[tuple[str, ...]]
) -> None:
    """Depth first, without recursion: dependency chains may be long."""
    path, branches = list[str](), [iter((start,))]
    while branches:
        name = next(branches[-1], None)
        if name is None:
            branches.pop()
            if path:
                finished.add(path.pop())
        elif name in path:
            cycles.append(tuple(path[path.index(name) :]))
        elif name in after and name not in finished:
            path.append(name)
            branches.append(iter(after[name]))

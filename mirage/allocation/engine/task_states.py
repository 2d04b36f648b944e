"""Task states, derived only from the journals and claims."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from mirage.allocation.ddl.estimation import Evidence
from mirage.allocation.ddl.speeds import MeasuredRun
from mirage.allocation.engine.entries import (
    Adopted,
    AttemptResult,
    Ended,
    Entry,
    GaveUp,
    LifeBegan,
    LifeOver,
    NodeAside,
    PoolSeen,
    SpeedSeen,
    Started,
    Starting,
    Stopping,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.allocation.engine.plan import TaskSpec


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at a task."""

    task: str
    number: int
    """From 1."""
    life: str
    """The agent run that has claimed it, or monitors it now."""
    parts: dict[str, list[int]] | None = None
    """Its devices on each node; ``None``: claimed, but not started as far as is known."""
    share: float = 1.0
    start: float | None = None
    pid: int = 0
    stopping: Stopping | None = None
    ended: Ended | None = None


@dataclass(slots=True)
class LifeRecord:
    """The state of one agent run, from its journal."""

    name: str
    began: LifeBegan | None = None
    pool: PoolSeen | None = None
    over: LifeOver | None = None
    aside: dict[str, str] = field(default_factory=dict)
    """Nodes on which it starts no more tasks, with the reason."""


class TaskState(StrEnum):
    """The state of a task."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """A task that it waits for has failed."""

    @property
    def over(self) -> bool:
        """Whether it will not run again."""
        return self in (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.SKIPPED)


MOST_REFUSALS = 10
"""Rejections in a row after which a task fails: something about it cannot be granted here."""


@dataclass(slots=True)
class TaskStates:
    """Folds entries into tasks, attempts and agent runs; only each agent run's own order of entries matters."""

    attempts: dict[str, dict[int, TaskAttempt]] = field(default_factory=dict)
    lives: dict[str, LifeRecord] = field(default_factory=dict)
    given_up: dict[str, str] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=Evidence)
    """Measured speeds of tasks, alone and next to others."""

    def fold(self, news: Iterable[tuple[str, Entry]]) -> None:
        """Apply entries of the journals."""
        for life, entry in news:
            self._apply(entry, life)

    def fold_claims(self, claims: Iterable[tuple[str, int, str]]) -> None:
        """Add claims without an entry, left by agent runs that ended, or were read, between the two."""
        for task, number, life in claims:
            if number not in self.attempts.get(task, {}):
                self._keep(TaskAttempt(task, number, life))

    @property
    def zero(self) -> float:
        """Start of the first agent run; infinite before that."""
        return min((life.began.at for life in self.lives.values() if life.began), default=float("inf"))

    def of(self, task: str) -> list[TaskAttempt]:
        """A task's attempts, in order."""
        return [attempt for _, attempt in sorted(self.attempts.get(task, {}).items())]

    def open_attempts(self) -> list[TaskAttempt]:
        """Those that have not ended, as far as is known."""
        every = (attempt for attempts in self.attempts.values() for attempt in attempts.values())
        return [attempt for attempt in every if attempt.ended is None]

    def next_number(self, task: str) -> int:
        """Number of the next attempt."""
        return max(self.attempts.get(task, {}), default=0) + 1

    def served(self, task: str) -> float:
        """Seconds of running whose work is kept."""
        kept = (AttemptResult.SUCCEEDED, AttemptResult.CHECKPOINTED, AttemptResult.PREEMPTED)
        return sum(a.ended.ran for a in self.of(task) if a.ended and a.ended.result in kept)

    def preemptions(self, task: str) -> int:
        """How often it was preempted."""
        return sum(a.ended is not None and a.ended.result is AttemptResult.PREEMPTED for a in self.of(task))

    def succeeded(self, task: str) -> bool:
        """Whether an attempt at it has succeeded."""
        return any(a.ended is not None and a.ended.result is AttemptResult.SUCCEEDED for a in self.of(task))

    def saves(self, task: str) -> bool:
        """Whether it has saved at every preemption: otherwise it would lose its work each time."""
        return not any(a.stopping and a.stopping.yields and not a.stopping.saves for a in self.of(task))

    def failures(self, task: str) -> list[Ended]:
        """Failures that count against its retries."""
        return [a.ended for a in self.of(task) if a.ended and a.ended.result is AttemptResult.FAILED]

    def refusals(self, task: str) -> list[Ended]:
        """The last attempts that were rejected in a row."""
        last = list[Ended]()
        for attempt in reversed(self.of(task)):
            if not attempt.ended or attempt.ended.result is not AttemptResult.REFUSED:
                break
            last.append(attempt.ended)
        return last[::-1]

    def longest_cut(self, task: str) -> float:
        """Seconds of the longest attempt that a link's end has cut off: the task needs more than that."""
        return max(
            (a.ended.ran for a in self.of(task) if a.ended and a.ended.result is AttemptResult.CUT_OFF),
            default=0.0,
        )

    def states(self, tasks: Iterable[TaskSpec]) -> dict[str, tuple[TaskState, str]]:
        """State and reason of each task."""
        states = {task.name: self._own_state(task) for task in tasks}
        after = {task.name: task.after for task in tasks}
        for name in _in_order(after):
            lost = next((n for n in after[name] if states[n][0] in (TaskState.FAILED, TaskState.SKIPPED)), None)
            if lost is not None and states[name][0] is TaskState.PENDING:
                states[name] = TaskState.SKIPPED, f"waits for {lost}, which has {states[lost][0]}"
        return states

    def _own_state(self, task: TaskSpec) -> tuple[TaskState, str]:
        attempts = self.of(task.name)
        if any(a.ended and a.ended.result is AttemptResult.SUCCEEDED for a in attempts):
            return TaskState.SUCCEEDED, ""
        if any(a.ended is None for a in attempts):
            return TaskState.RUNNING, ""
        failures = self.failures(task.name)
        if len(failures) > task.retries:
            return TaskState.FAILED, failures[-1].why
        if task.name in self.given_up:
            return TaskState.FAILED, self.given_up[task.name]
        refusals = self.refusals(task.name)
        if len(refusals) >= MOST_REFUSALS:
            return TaskState.FAILED, f"rejected {len(refusals)} times in a row: {refusals[-1].why}"
        last = attempts[-1].ended if attempts else None
        return TaskState.PENDING, last.why if last else ""

    def _keep(self, attempt: TaskAttempt) -> None:
        self.attempts.setdefault(attempt.task, {})[attempt.number] = attempt

    def _attempt(self, task: str, number: int, life: str) -> TaskAttempt:
        return self.attempts.get(task, {}).get(number) or TaskAttempt(task, number, life)

    def _life(self, name: str) -> LifeRecord:
        return self.lives.setdefault(name, LifeRecord(name))

    @singledispatchmethod
    def _apply(self, entry: object, life: str) -> None:
        """Do nothing: remarks change no state."""

    @_apply.register
    def _(self, entry: LifeBegan, life: str) -> None:
        self._life(life).began = entry

    @_apply.register
    def _(self, entry: PoolSeen, life: str) -> None:
        self._life(life).pool = entry

    @_apply.register
    def _(self, entry: NodeAside, life: str) -> None:
        self._life(life).aside[entry.node] = entry.why

    @_apply.register
    def _(self, entry: SpeedSeen, life: str) -> None:
        others = [MeasuredRun(*run) for run in entry.beside]
        self.evidence.add(MeasuredRun(*entry.run), others, entry.seconds, entry.done)

    @_apply.register
    def _(self, entry: LifeOver, life: str) -> None:
        self._life(life).over = entry

    @_apply.register
    def _(self, entry: Starting, life: str) -> None:
        attempt = self._attempt(entry.task, entry.attempt, life)
        self._keep(replace(attempt, parts=entry.parts, share=entry.share, start=entry.at))

    @_apply.register
    def _(self, entry: Started, life: str) -> None:
        self._keep(replace(self._attempt(entry.task, entry.attempt, life), pid=entry.pid))

    @_apply.register
    def _(self, entry: Adopted, life: str) -> None:
        self._keep(replace(self._attempt(entry.task, entry.attempt, life), pid=entry.pid, life=life))

    @_apply.register
    def _(self, entry: Stopping, life: str) -> None:
        self._keep(replace(self._attempt(entry.task, entry.attempt, life), stopping=entry))

    @_apply.register
    def _(self, entry: Ended, life: str) -> None:
        attempt = self._attempt(entry.task, entry.attempt, life)
        if attempt.ended is None:
            self._keep(replace(attempt, ended=entry))

    @_apply.register
    def _(self, entry: GaveUp, life: str) -> None:
        self.given_up.setdefault(entry.task, entry.why)


def _in_order(after: dict[str, tuple[str, ...]]) -> Iterable[str]:
    """Each task after those that it waits for."""
    from graphlib import TopologicalSorter

    return TopologicalSorter(after).static_order()

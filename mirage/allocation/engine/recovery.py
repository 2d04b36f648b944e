"""What one agent run records, and what it does with the records of earlier ones.

Open attempts of earlier agent runs are monitored again, recorded as ended, or left to agents that still run. A
journal that cannot be written is reported.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.allocation.engine.agent_runs import OpenRunState, standing_of
from mirage.allocation.engine.entries import Adopted, AttemptResult, Ended, LifeOver, Starting
from mirage.allocation.engine.journal import key
from mirage.allocation.engine.judging import judge, seconds_ran
from mirage.allocation.engine.steps import began_at, ended_at, read_ending
from mirage.domain.errors import ClusterUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.allocation.engine.dependencies import AgentDependencies
    from mirage.allocation.engine.entries import Entry, LifeBegan
    from mirage.allocation.engine.plan import TaskSpec, WorkPlan
    from mirage.allocation.engine.steps import StartedStep
    from mirage.allocation.engine.task_states import TaskAttempt, TaskStates


class RunRecorder:
    """The journal and the task states of one agent run, kept in step. Not thread-safe."""

    def __init__(self, life: LifeBegan, ledger: TaskStates, world: AgentDependencies) -> None:
        self._life, self._ledger, self._world = life.life, ledger, world
        self._said = ""

    def write(self, entry: Entry, *, first: bool = False) -> None:
        """Write an entry, or keep it until there is room, and apply it. ``first``: raises ``OSError`` instead."""
        self._world.journal.write(entry, first=first)
        self._ledger.fold([(self._life, entry)])

    def announce(self, spec: TaskSpec, attempt: int, parts: dict[str, list[int]]) -> bool | None:
        """Claim an attempt and record its start; whether the claim is ours. ``None``: the disk has no room."""
        folder, journal = self._world.folder, self._world.journal
        try:
            if not folder.claim(spec.name, attempt, self._life):
                return False
            try:
                self.write(Starting(self._world.clock(), spec.name, attempt, parts, spec.share), first=True)
            except OSError:
                folder.give_back(spec.name, attempt)
                raise
        except OSError as error:
            journal.problem = journal.problem or error.strerror or str(error)
            return None
        return True

    def tell(self) -> None:
        """Report once that the journal cannot be written and once that it can be again; retry waiting entries."""
        if self._world.journal.waits:
            with contextlib.suppress(OSError):
                self._world.journal.flush()
        problem, before = self._world.journal.problem, self._said
        place = self._world.folder.path
        if problem and not before:
            what = "running tasks are still monitored, and no task starts until there is room"
            self._world.say(f"{place}: the journal cannot be written: {problem}; {what}")
        elif before and not problem:
            self._world.say(f"{place}: the journal can be written again")
        self._said = problem

    def close(self, why: str, *, over: bool) -> None:
        """Write the last entry, where no step of this agent run runs any more (``over``)."""
        if over:
            self.write(LifeOver(self._world.clock(), why))
        if lost := self._world.journal.close():
            text = "entries of the journal are lost: later links do not know how these tasks have ended"
            self._world.say(f"{self._world.folder.path}: {lost} {text}")


_LOOK_EVERY = 10.0


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A running step that an earlier agent of this job or machine has started."""

    attempt: TaskAttempt
    step: StartedStep


class AttemptRecovery:
    """Handles attempts that are open in the task states and not ours."""

    def __init__(
        self,
        life: LifeBegan,
        plan: WorkPlan,
        ledger: TaskStates,
        world: AgentDependencies,
        write: Callable[[Entry], None],
    ) -> None:
        self._life, self._ledger, self._world, self._write = life, ledger, world, write
        self._tasks = {task.name: task for task in plan.tasks}
        self._next_look = 0.0
        self._doubtful = set[str]()

    def look(self) -> list[RunningStep]:
        """Those to monitor from now on. Attempts that have ended are recorded as ended."""
        now = self._world.clock()
        if now < self._next_look:
            return []
        self._next_look = now + _LOOK_EVERY
        strangers = [each for each in self._ledger.open_attempts() if each.life != self._life.life]
        return self._among([each for each in strangers if each.task in self._tasks])

    def _among(self, strangers: list[TaskAttempt]) -> list[RunningStep]:
        standings = {name: self._standing(name) for name in {each.life for each in strangers}}
        orphans = [each for each in strangers if standings[each.life] is OpenRunState.AGENT_DIED]
        try:
            living = self._find(orphans)
        except ClusterUnavailable as error:
            self._world.say(f"the steps of an earlier agent are not known yet: {error}")
            orphans, living = [], {}
        for each in strangers:
            if standings[each.life] is OpenRunState.GONE or (each in orphans and _key(each) not in living):
                self._write_off(each)
        return [self._adopt(each, living[_key(each)]) for each in orphans if _key(each) in living]

    def _standing(self, name: str) -> OpenRunState:
        record = self._ledger.lives.get(name)
        if record is None or record.began is None:
            return OpenRunState.UNKNOWN  # its file is not visible here yet
        if record.over is not None:
            return OpenRunState.GONE
        standing = standing_of(record.began, self._life, self._world.jobs)
        if standing is OpenRunState.UNKNOWN and name not in self._doubtful:
            self._doubtful.add(name)
            self._world.say(f"whether {name} still runs on {record.began.host} is not known here")
        return standing

    def _find(self, orphans: list[TaskAttempt]) -> dict[str, StartedStep]:
        folder = self._world.folder
        return self._world.engine.find([(_key(each), folder.step(each.task, each.number)) for each in orphans])

    def _adopt(self, attempt: TaskAttempt, step: StartedStep) -> RunningStep:
        self._write(Adopted(self._world.clock(), attempt.task, attempt.number, step.pid))
        return RunningStep(attempt, step)

    def _write_off(self, attempt: TaskAttempt) -> None:
        """Take the exit code that its supervisor has recorded; without one it is lost, to be retried."""
        now = self._world.clock()
        path = self._world.folder.step(attempt.task, attempt.number)
        at, ending = ended_at(path), read_ending(path)
        result, why = AttemptResult.LOST, "its link, or its agent, ended"
        if at is not None:
            result, why = judge(ending, attempt.stopping, (), self._tasks[attempt.task].checkpoint)
        if result is AttemptResult.FAILED and (ending.code is None or ending.code > 128):
            result = AttemptResult.LOST  # killed, most likely together with its link
        ran = 0.0
        if at is not None and attempt.start is not None:
            ran = seconds_ran(attempt.start, began_at(path), at, attempt.stopping, math.inf)
        self._write(Ended(now, attempt.task, attempt.number, result, ending.code, why, ran))
        self._world.say(f"{_key(attempt)}: {result}{f': {why}' if why else ''}")


def _key(attempt: TaskAttempt) -> str:
    return key(attempt.task, attempt.number)

"""Open attempts of earlier agent runs: monitored again, recorded as ended, or left to agents that still run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.allocation.engine.entries import Adopted, Ended, Result
from mirage.allocation.engine.journal import key
from mirage.allocation.engine.judging import judge, seconds_ran
from mirage.allocation.engine.lives import Standing, standing_of
from mirage.allocation.engine.remains import began_at, ended_at, read_ending
from mirage.domain.errors import ClusterUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.allocation.engine.entries import Entry, LifeBegan
    from mirage.allocation.engine.ledger import Attempt, Ledger
    from mirage.allocation.engine.plan import WorkPlan
    from mirage.allocation.engine.steps import Step
    from mirage.allocation.engine.world import World

_LOOK_EVERY = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """A running step that an earlier agent of this job or machine has started."""

    attempt: Attempt
    step: Step


class Recovery:
    """Handles attempts that are open in the task states and not ours."""

    def __init__(
        self, life: LifeBegan, plan: WorkPlan, ledger: Ledger, world: World, write: Callable[[Entry], None]
    ) -> None:
        self._life, self._ledger, self._world, self._write = life, ledger, world, write
        self._tasks = {task.name: task for task in plan.tasks}
        self._next_look = 0.0
        self._doubtful = set[str]()

    def look(self) -> list[Found]:
        """Those to monitor from now on. Attempts that have ended are recorded as ended."""
        now = self._world.clock()
        if now < self._next_look:
            return []
        self._next_look = now + _LOOK_EVERY
        strangers = [each for each in self._ledger.open_attempts() if each.life != self._life.life]
        return self._among([each for each in strangers if each.task in self._tasks])

    def _among(self, strangers: list[Attempt]) -> list[Found]:
        standings = {name: self._standing(name) for name in {each.life for each in strangers}}
        orphans = [each for each in strangers if standings[each.life] is Standing.AGENT_DIED]
        try:
            living = self._find(orphans)
        except ClusterUnavailable as error:
            self._world.say(f"the steps of an earlier agent are not known yet: {error}")
            orphans, living = [], {}
        for each in strangers:
            if standings[each.life] is Standing.GONE or (each in orphans and _key(each) not in living):
                self._write_off(each)
        return [self._adopt(each, living[_key(each)]) for each in orphans if _key(each) in living]

    def _standing(self, name: str) -> Standing:
        record = self._ledger.lives.get(name)
        if record is None or record.began is None:
            return Standing.UNKNOWN  # its file is not visible here yet
        if record.over is not None:
            return Standing.GONE
        standing = standing_of(record.began, self._life, self._world.jobs)
        if standing is Standing.UNKNOWN and name not in self._doubtful:
            self._doubtful.add(name)
            self._world.say(f"whether {name} still runs on {record.began.host} is not known here")
        return standing

    def _find(self, orphans: list[Attempt]) -> dict[str, Step]:
        folder = self._world.folder
        return self._world.engine.find([(_key(each), folder.step(each.task, each.number)) for each in orphans])

    def _adopt(self, attempt: Attempt, step: Step) -> Found:
        self._write(Adopted(self._world.clock(), attempt.task, attempt.number, step.pid))
        return Found(attempt, step)

    def _write_off(self, attempt: Attempt) -> None:
        """Take the exit code that its supervisor has recorded; without one it is lost, to be retried."""
        now = self._world.clock()
        path = self._world.folder.step(attempt.task, attempt.number)
        at, ending = ended_at(path), read_ending(path)
        result, why = Result.LOST, "its link, or its agent, ended"
        if at is not None:
            result, why = judge(ending, attempt.stopping, (), self._tasks[attempt.task].checkpoint)
        if result is Result.FAILED and (ending.code is None or ending.code > 128):
            result = Result.LOST  # killed, most likely together with its link
        ran = 0.0
        if at is not None and attempt.start is not None:
            ran = seconds_ran(attempt.start, began_at(path), at, attempt.stopping, math.inf)
        self._write(Ended(now, attempt.task, attempt.number, result, ending.code, why, ran))
        self._world.say(f"{_key(attempt)}: {result}{f': {why}' if why else ''}")


def _key(attempt: Attempt) -> str:
    return key(attempt.task, attempt.number)

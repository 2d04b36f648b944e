"""The agent decides, starts and monitors the tasks of one link. ``cycle`` lists what it does in each pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from mirage.allocation.engine.allocation_table import Oversubscribed
from mirage.allocation.engine.dependencies import Refusals, Running, ScheduleTriggers
from mirage.allocation.engine.entries import AttemptResult, Ended, GaveUp, NodeAside, Remark, Started, Stopping
from mirage.allocation.engine.journal import key
from mirage.allocation.engine.judging import MARGIN, TO_END, fits_in, is_hopeless, judge, not_before, to_be_killed
from mirage.allocation.engine.measuring import ThroughputMeter
from mirage.allocation.engine.recovery import AttemptRecovery, RunRecorder
from mirage.allocation.engine.steps import EngineRefused
from mirage.allocation.engine.task_interface import launch_of
from mirage.allocation.engine.task_states import TaskState

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from mirage.allocation.engine.allocation_table import AllocationTable, Holding
    from mirage.allocation.engine.dependencies import AgentDependencies, AgentSettings
    from mirage.allocation.engine.discovery import Allocation
    from mirage.allocation.engine.entries import Entry, LifeBegan
    from mirage.allocation.engine.plan import TaskSpec, WorkPlan
    from mirage.allocation.engine.situation import Situation
    from mirage.allocation.engine.steps import Ending
    from mirage.allocation.engine.task_states import TaskStates
    from mirage.domain.pool import Placement, PoolView

LOOK_EVERY = 5.0
"""Seconds between two passes without an event, to see what other links have written."""
LOOK_OFTEN = 1.0
"""The same while steps of an earlier agent run: no signal announces their end."""

_KILL_AGAIN = 30.0


class Progress(Enum):
    """What a cycle leaves to do."""

    GOING = "going"
    IDLE = "idle"
    """Tasks are left, and none of them can start in this link."""
    OVER = "over"
    """Every task has ended."""


@dataclass(slots=True)
class Agent:
    """Runs a plan in one link. Not thread-safe."""

    life: LifeBegan
    plan: WorkPlan
    allocation: Allocation
    situation: Situation
    book: AllocationTable
    ledger: TaskStates
    policy: AgentSettings
    world: AgentDependencies
    running: dict[int, Running] = field(default_factory=dict)
    """By row of the task."""
    told: str = ""
    """The signal that asked this link to end; empty before."""
    _recovery: AttemptRecovery = field(init=False)
    _occasions: ScheduleTriggers = field(init=False)
    _gauge: ThroughputMeter = field(init=False)
    _states: dict[str, tuple[TaskState, str]] = field(default_factory=dict)
    _refusals: Refusals = field(init=False)
    _record: RunRecorder = field(init=False)

    def __post_init__(self) -> None:
        self._record = RunRecorder(self.life, self.ledger, self.world)
        self._recovery = AttemptRecovery(self.life, self.plan, self.ledger, self.world, self.write)
        self._occasions = ScheduleTriggers(self.policy.quantum)
        self._refusals = Refusals(self.book.pool.node_names)
        self._gauge = ThroughputMeter(self.plan, self.book.pool, self.world.folder)
        self._gauge.recall(self.ledger)
        self.situation.reports = self._gauge.reports

    # the loop's body

    def cycle(self) -> Progress:
        """Run one cycle. Where the journal cannot be written, no task starts."""
        self._listen()
        self._gather()
        self._recover()
        self._measure()
        self._enforce()
        self._judge_tasks()
        self._start()
        self._record.tell()
        return self._progress()

    def next_instant(self) -> float:
        """The latest time of the next cycle, epoch seconds."""
        now = self.world.clock()
        waits = self._rows(TaskState.PENDING)
        instants = [not_before(self.ledger, self.plan.tasks[row].name) for row in waits]
        instants += [each.kill_at for each in self.running.values()]
        instants += [self._occasions.next_instant] if waits else []
        look = LOOK_OFTEN if any(each.adopted for each in self.running.values()) else LOOK_EVERY
        return min([now + look, *(at for at in instants if at > now)])

    def make_way(self, signal: str) -> None:
        """Start no more tasks and ask those with a checkpoint to save; the second call ends all others too."""
        again, self.told = bool(self.told), signal
        self.write(Remark(self.world.clock(), f"received {signal}: this link starts no more tasks and ends"))
        for each in list(self.running.values()):
            spec = self.plan.tasks[each.row]
            if each.stopping is None and spec.checkpoint is not None:
                self._ask_to_save(each, "its link was asked to end")
            elif again and each.stopping is None:
                self._end(each, "its link was asked twice to end")

    def close(self, why: str) -> None:
        """Write the last entry of this agent run."""
        self._record.close(why, over=not self.running)

    def write(self, entry: Entry) -> None:
        """See ``RunRecorder.write``."""
        self._record.write(entry)

    @property
    def states(self) -> dict[str, tuple[TaskState, str]]:
        """State and reason of each task, as of the last cycle."""
        return self._states

    # 1. what others have written

    def _listen(self) -> None:
        self.ledger.fold((life, entry) for life, entry in self.world.reader.news() if life != self.life.life)

    # 2. what has ended

    def _gather(self) -> None:
        for each in list(self.running.values()):
            ending = self.world.engine.poll(each.step)
            if ending is not None:
                self._note_end(each, ending)

    def _note_end(self, each: Running, ending: Ending) -> None:
        now, spec = self.world.clock(), self.plan.tasks[each.row]
        result, why = judge(ending, each.stopping, each.nodes, spec.checkpoint)
        if each.adopted and ending.code is None:
            result, why = AttemptResult.LOST, "its agent and the supervisor that records the exit code were killed"
        ran = self.world.ran(each, now, now + self._left(now))
        self.write(Ended(now, spec.name, each.attempt, result, ending.code, why, ran))
        del self.running[each.row]
        self.book.release(each.row)
        self._blame(each, result, why, ending.failed_nodes)
        if result is not AttemptResult.SUCCEEDED:
            self.world.say(f"{key(spec.name, each.attempt)}: {result}: {why}")

    def _blame(self, each: Running, result: AttemptResult, why: str, failed: Sequence[str]) -> None:
        """Start nothing more on nodes that have failed, and on those that reject steps repeatedly."""
        for node in failed:
            self._put_aside(node, "the node has failed")
        for node in each.nodes:
            if said := self._refusals.note(node, why if result is AttemptResult.REFUSED else ""):
                self._put_aside(node, said)

    def _put_aside(self, node: str, why: str) -> None:
        if node not in self.book.pool.node_names:
            return
        row = self.book.pool.node_names.index(node)
        if row not in self.book.aside:
            self.book.aside.add(row)
            self.write(NodeAside(self.world.clock(), node, why))
            self.world.say(f"no more tasks start on {node}: {why}")

    # 3. what earlier agent runs have left

    def _recover(self) -> None:
        for found in self._recovery.look():
            attempt = found.attempt
            row = self.plan.rows[attempt.task]
            start = self.world.clock() if attempt.start is None else attempt.start
            nodes, kill_at = tuple(attempt.parts or {}), to_be_killed(attempt.stopping, self.plan.tasks[row])
            each = Running(row, attempt.number, found.step, start, nodes, attempt.stopping, kill_at, adopted=True)
            self.running[row] = each
            self.book.adopt(row, self.plan.tasks[row], attempt.parts or {}, attempt.share)
            self.world.say(f"{key(attempt.task, attempt.number)}: still runs, and is monitored again")

    # 4. progress and throughput

    def _measure(self) -> None:
        for entry in self._gauge.look(self.world.clock(), self.running, self.book):
            self.write(entry)
        self.situation.learn(self.world.clock(), self.book.pool, self.ledger)

    # 5. what has to end

    def _enforce(self) -> None:
        now = self.world.clock()
        for each in list(self.running.values()):
            spec = self.plan.tasks[each.row]
            if each.stopping is not None:
                self._insist(each, now)
            elif spec.time_limit is not None and self.world.ran(each, now, math.inf) > spec.time_limit:
                self._end(each, f"ran longer than its time_limit of {spec.time_limit:g} s", fails=True)
            elif self._left(now) <= MARGIN:
                self._end(each, "its link ends")
            elif spec.checkpoint is not None and self._left(now) <= MARGIN + spec.checkpoint.grace:
                self._ask_to_save(each, "its link ends")

    def _left(self, now: float) -> float:
        return math.inf if self.allocation.end is None else self.allocation.end - now

    def _ask_to_save(self, each: Running, why: str, *, yields: bool = False) -> None:
        spec = self.plan.tasks[each.row]
        assert spec.checkpoint is not None
        stopping = Stopping(self.world.clock(), spec.name, each.attempt, why, saves=True, yields=yields)
        self._stop(each, stopping, spec.checkpoint.signal)

    def _end(self, each: Running, why: str, *, fails: bool = False) -> None:
        name = self.plan.tasks[each.row].name
        stopping = Stopping(self.world.clock(), name, each.attempt, why, saves=False, fails=fails)
        self._stop(each, stopping, TO_END)

    def _stop(self, each: Running, stopping: Stopping, signal: str) -> None:
        each.stopping, each.kill_at = stopping, to_be_killed(stopping, self.plan.tasks[each.row])
        self.write(stopping)
        self.world.engine.signal(each.step, signal)

    def _insist(self, each: Running, now: float) -> None:
        if now < each.kill_at:
            return
        if each.stopping is not None and each.stopping.saves:
            why = f"{each.stopping.why}, and it did not end within its grace period"
            each.stopping = replace(each.stopping, at=now, why=why, saves=False)
            self.write(each.stopping)
        each.kills += 1
        self.world.engine.signal(each.step, "KILL")
        each.kill_at = now + _KILL_AGAIN

    # 6. task states

    def _judge_tasks(self) -> None:
        self._states = self.ledger.states(self.plan.tasks)
        for task in self.plan.tasks:
            if self._states[task.name][0] is not TaskState.PENDING:
                continue
            if why := is_hopeless(task, self.ledger, self.allocation.length):
                self.write(GaveUp(self.world.clock(), task.name, why))
                self.world.say(f"{task.name}: {why}")
        self._states = self.ledger.states(self.plan.tasks)

    def _rows(self, state: TaskState) -> list[int]:
        return [row for row, task in enumerate(self.plan.tasks) if self._states[task.name][0] is state]

    def startable(self) -> list[int]:
        """Rows of the tasks that may start in this link, now or after a pause."""
        left = self._left(self.world.clock())
        return [
            row
            for row in self._rows(TaskState.PENDING)
            if self._is_due(row) and fits_in(self.plan.tasks[row], self.ledger, left)
        ]

    def _is_due(self, row: int) -> bool:
        """Whether all tasks that it waits for have succeeded."""
        return all(self._states[name][0] is TaskState.SUCCEEDED for name in self.plan.tasks[row].after)

    # 7. what to start

    def _start(self) -> None:
        """Place tasks as if the tasks that were asked to leave had already released their devices.

        What a preempting task gets is therefore kept for it without a reservation: the next decision, after the
        preempted task has ended, comes to the same result.
        """
        now = self.world.clock()
        pending = [row for row in self.startable() if not_before(self.ledger, self.plan.tasks[row].name) <= now]
        waiting = {(row, self.ledger.next_number(self.plan.tasks[row].name)) for row in pending}
        if self.told or not pending or not self._occasions.is_due(now, self._seen(waiting)):
            return
        starts = self._decide(now, pending)
        expected = self._expected()
        for placement in starts:
            if int(placement.task) not in self.running and not self._place(placement, expected):
                return
        self._occasions.note(now, self._seen(waiting))

    def _seen(self, waiting: set[tuple[int, int]]) -> Hashable:
        """The state that triggers a decision; ``waiting``: tasks with the numbers of their next attempts."""
        running = {(row, each.attempt, each.leaves) for row, each in self.running.items()}
        left = {(row, number) for row, number in waiting if row not in self.running}
        return frozenset(left), frozenset(running), frozenset(self.book.aside)

    def _decide(self, now: float, pending: list[int]) -> Sequence[Placement]:
        """Start the chosen tasks. Tasks to preempt are asked first; those placed on their devices wait."""
        while True:
            moves = self.policy.decide(self._view(now, pending))
            going = [int(row) for row in moves.preemptions if self._may_yield(int(row))]
            if not going:
                return moves.starts
            for row in going:
                self._ask_to_save(self.running[row], "preempted by a task that comes first", yields=True)

    def _expected(self) -> AllocationTable:
        return self.book.without({row for row, each in self.running.items() if each.leaves})

    def _view(self, now: float, pending: list[int]) -> PoolView:
        running = {row: each.start for row, each in self.running.items()}
        yielding = [row for row in running if self._may_yield(row) or self._comes_back(row, now)]
        return self.situation.view(now, [*pending, *yielding], running, self._expected(), self.ledger)

    def _may_yield(self, row: int) -> bool:
        """Whether it can be preempted: it has a checkpoint and was not asked to end."""
        spec, each = self.plan.tasks[row], self.running.get(row)
        told = each is None or each.stopping is not None
        return self.policy.preempt and not told and spec.checkpoint is not None and self.ledger.saves(spec.name)

    def _comes_back(self, row: int, now: float) -> bool:
        """Whether it is being preempted and may get another place afterwards."""
        return self.running[row].yields and fits_in(self.plan.tasks[row], self.ledger, self._left(now))

    def _place(self, placement: Placement, expected: AllocationTable) -> bool:
        """Allocate, claim, write, start: in this order, so that no attempt starts twice.

        Returns whether the file system had room for the entry that comes first.
        """
        spec = self.plan.tasks[int(placement.task)]
        try:
            expected.take(spec, placement)
        except Oversubscribed as error:
            self.write(Remark(self.world.clock(), str(error)))
            return True
        try:
            holding = self.book.take(spec, placement)
        except Oversubscribed:
            return True  # of one that leaves
        attempt = self.ledger.next_number(spec.name)
        ours = self._record.announce(spec, attempt, self.book.parts(holding))
        if ours:
            self._launch(spec, attempt, holding)
            return True
        self.book.release(holding.row)
        if ours is False:
            self.ledger.fold_claims(self.world.folder.claimed())
        return ours is not None

    def _launch(self, spec: TaskSpec, attempt: int, holding: Holding) -> None:
        parts = self.book.parts(holding)
        now = self.world.clock()
        try:
            step = self.world.engine.launch(
                launch_of(spec, attempt, self._device_kind(holding), parts, self.world.folder)
            )
        except EngineRefused as error:
            self.book.release(holding.row)
            self.write(Ended(now, spec.name, attempt, AttemptResult.REFUSED, None, str(error), 0.0))
            self.world.say(f"{key(spec.name, attempt)}: {error}")
            return
        self.running[holding.row] = Running(holding.row, attempt, step, now, tuple(parts))
        self.write(Started(self.world.clock(), spec.name, attempt, step.pid))

    def _device_kind(self, holding: Holding) -> str:
        pool = self.book.pool
        return pool.kinds[int(pool.device_kind[holding.devices[0]])] if holding.devices else ""

    # what is left

    def _progress(self) -> Progress:
        self._states = self.ledger.states(self.plan.tasks)
        if all(state.over for state, _ in self._states.values()):
            return Progress.OVER
        if self.running or (not self.told and self._may_yet_start()):
            return Progress.GOING
        return Progress.IDLE

    def _may_yet_start(self) -> bool:
        """Whether waiting may help: a pause may end, or another link's task."""
        return self.has_nodes and (bool(self.startable()) or self._older_runs())

    @property
    def has_nodes(self) -> bool:
        """Whether any node is left that has not been put aside."""
        return len(self.book.aside) < len(self.book.pool.node_names)

    def _older_runs(self) -> bool:
        """Whether tasks of an earlier link may still come to this one; those of a later link do not."""
        lives = {each.life for each in self.ledger.open_attempts()} - {self.life.life}
        records = [self.ledger.lives.get(name) for name in lives]
        return any(record is None or record.began is None or record.began.at <= self.life.at for record in records)

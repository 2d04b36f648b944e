"""One link's run from its beginning to its exit code.

Between two cycles it sleeps until something happens: a step ends, a signal comes, or it is time.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.allocation.engine.agent import Agent, Progress
from mirage.allocation.engine.agent_runs import NoJobs, begin, lock
from mirage.allocation.engine.allocation_table import (
    AllocationTable,
    check_demands,
    given_speeds,
    nothing_known,
    task_table,
)
from mirage.allocation.engine.dependencies import AgentDependencies
from mirage.allocation.engine.discovery import Allocation, read_job, read_machine, with_own_islands, with_topology
from mirage.allocation.engine.entries import PoolSeen, Remark
from mirage.allocation.engine.journal import JournalReader, JournalWriter, StateFolder
from mirage.allocation.engine.situation import Situation
from mirage.allocation.engine.slurmcommands import SlurmCommands
from mirage.allocation.engine.status import document, publish, read_ledger
from mirage.allocation.engine.step_engines import ProcessEngine, SrunEngine
from mirage.allocation.engine.task_states import TaskState, TaskStates
from mirage.domain.errors import ClusterUnavailable, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from mirage.allocation.engine.agent_runs import Jobs
    from mirage.allocation.engine.dependencies import AgentSettings
    from mirage.allocation.engine.plan import WorkPlan
    from mirage.allocation.engine.steps import Engine

TELLING = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
"""Signals that ask a link to end: Slurm's ``--signal=B:USR1@300``, Mirage's handover, a user's Ctrl-C."""


class Alarm:
    """Create it in the main thread; from then on these signals do not end the process."""

    def __init__(self) -> None:
        self.told: list[str] = []
        """Names of the signals received since the last call."""
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in TELLING:
            signal.signal(number, self._tell)
        signal.signal(signal.SIGCHLD, _notice)

    def wait(self, seconds: float) -> None:
        """Sleep at most ``seconds``."""
        select.select([self._reader], [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def _tell(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.told.append(signal.Signals(number).name)


def _notice(number: int, frame: FrameType | None) -> None:
    """Install a handler: without one the signal would not wake the process."""
    del number, frame


UNFINISHED = 75
"""Exit code EX_TEMPFAIL of sysexits: try again later."""
FAILED = 1

_PUBLISH_EVERY = 15.0
_ASK_AGAIN = 5.0
_ATTEMPTS = 5
_SHOWN = 5
"""Number of directories that an error names."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of the command line."""

    state: Path
    """Made absolute: srun and its steps have other working directories."""
    engine: str
    """``srun``, ``processes``, or empty: srun within a Slurm job, processes elsewhere."""
    devices: int | None
    done_file: Path | None
    speeds: str = ""
    """Initial table of speeds, as ``read_speeds`` takes it."""

    def __post_init__(self) -> None:
        """Paths are relative to the directory of the call."""
        object.__setattr__(self, "state", self.state.absolute())


@dataclass(frozen=True, slots=True)
class Place:
    """Where this link runs, and by which engine."""

    allocation: Allocation
    engine: Engine
    jobs: Jobs


def default_state(source: Path, environment: Mapping[str, str]) -> Path:
    """The state directory: the one that the chain names, else one next to the task file.

    There each chain has a separate directory, which its links share.
    """
    if named := environment.get("MIRAGE_TASKS_STATE"):
        return Path(named)
    chain = environment.get("MIRAGE_CHAIN_ID", "")
    return source.resolve().parent / ".mirage" / (f"{chain}.tasks" if chain else source.stem)


def kept_state(source: Path, environment: Mapping[str, str]) -> Path:
    """The state directory of a task file, or of a directory itself, also outside of its chain.

    Raises ``ConfigError`` where several chains have one each.
    """
    if not source.is_file():
        return source
    own = default_state(source, environment)
    if own.is_dir():
        return own
    chains = [each for each in sorted(own.parent.glob("*.tasks")) if _is_of(each, source)]
    if len(chains) > 1:
        names = ", ".join(str(each) for each in chains[:_SHOWN])
        raise ConfigError(str(source), f"{len(chains)} chains have run it; name the directory of one: {names}")
    return chains[0] if chains else own


def _is_of(folder: Path, source: Path) -> bool:
    """Whether ``folder`` holds the tasks of this file."""
    try:
        lives = read_ledger(folder).lives.values()
    except ConfigError:
        return False
    return any(life.began and Path(life.began.source).name == source.name for life in lives)


def other_than_shown(state: Path, environment: Mapping[str, str]) -> str:
    """Warning where the daemon reads the tasks in another directory than the agent; else empty."""
    named = environment.get("MIRAGE_TASKS_STATE")
    if not named or Path(named).resolve() == state.resolve():
        return ""
    return (
        f"--state is {state}, but the chain was submitted with --tasks-state {named}: the tasks are kept in"
        f" {state}, and the web UI, which reads {named}, does not show them"
    )


def refuse_mixture(plan: WorkPlan, ledger: TaskStates, state: Path) -> None:
    """Raise ``ConfigError`` where a task of this name was run from another file: they would count as one."""
    sources = {name: Path(life.began.source).name for name, life in ledger.lives.items() if life.began}
    for task in plan.tasks:
        for attempt in ledger.of(task.name):
            other = sources.get(attempt.life, plan.source.name)
            if other != plan.source.name:
                problem = (
                    f"holds results of task {task.name!r} of {other}, and {plan.source.name} has a task of"
                    " that name too: name another directory with --state, or rename the task"
                )
                raise ConfigError(str(state), problem)


def find_place(wishes: Wishes, environment: Mapping[str, str]) -> Place:
    """The allocation and its engine. Raises ``ConfigError`` and ``ClusterUnavailable``."""
    job = _own_job(environment)
    slurm = SlurmCommands(environment)
    if wishes.engine == "srun" and not job:
        raise ConfigError("--engine", "srun needs a Slurm job, and SLURM_JOB_ID is not set")
    if (wishes.engine or ("srun" if job else "processes")) == "srun":
        if wishes.devices is not None:
            raise ConfigError("--devices", "not allowed within a Slurm job: Slurm lists the devices")
        found = with_topology(_patiently(lambda: read_job(slurm, job, environment)), slurm)
        return Place(found, SrunEngine(job, environment), slurm)
    machine = read_machine(wishes.devices, environment)
    machine = machine if wishes.devices is not None else with_own_islands(machine)
    return Place(machine, ProcessEngine(environment), slurm if job else NoJobs())


def _own_job(environment: Mapping[str, str]) -> int:
    """ID of the Slurm job that this process runs in; 0 outside a job."""
    text = environment.get("SLURM_JOB_ID", "")
    return int(text) if text.isdecimal() else 0


def _patiently(ask: Callable[[], Allocation]) -> Allocation:
    """Retry: a restart of the controller is no reason to lose a link."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return ask()
        except ClusterUnavailable:
            time.sleep(_ASK_AGAIN)
    return ask()


class AgentProcess:
    """The agent with its loop. Nothing is started before ``run``."""

    def __init__(
        self,
        plan: WorkPlan,
        place: Place,
        policy: AgentSettings,
        wishes: Wishes,
        say: Callable[[str], None],
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises ``ConfigError`` for demands that cannot be met here, and where another agent runs."""
        allocation, pool = place.allocation, place.allocation.pool()
        check_demands(plan, pool, allocation.length)
        given = given_speeds(wishes.speeds, pool)
        self._plan, self._wishes, self._say, self._clock = plan, wishes, say, clock
        self._in_chain = bool(environment.get("MIRAGE_CHAIN_ID"))
        folder = StateFolder(wishes.state)
        folder.make()
        life = begin(place.engine.name, plan.source, allocation, environment, clock())
        self._lock = lock(folder, life)
        reader, ledger = JournalReader(folder), TaskStates()
        ledger.fold(reader.news())
        ledger.fold_claims(folder.claimed())
        refuse_mixture(plan, ledger, wishes.state)
        try:
            journal = JournalWriter(folder, life.life)
        except OSError as error:
            raise ConfigError(str(folder.journals), f"cannot start a journal: {error.strerror}") from error
        zero = min(ledger.zero, life.at)
        table, speeds = task_table(plan, pool, zero), nothing_known(len(plan.tasks), len(pool.kinds))
        situation = Situation(plan, table, speeds, zero, given)
        world = AgentDependencies(place.engine, folder, journal, reader, clock, place.jobs, say)
        self.agent = Agent(life, plan, allocation, situation, AllocationTable(pool), ledger, policy, world)
        self.agent.write(life)
        nodes = {node.name: [(device.index, device.kind) for device in node.devices] for node in allocation.nodes}
        self.agent.write(PoolSeen(life.at, allocation.end, nodes))
        self._published = -math.inf
        self._unpublished = ""

    def run(self, alarm: Alarm) -> int:
        """Work until nothing is left to do here; returns the exit code."""
        self._greet()
        while True:
            while alarm.told:
                self.agent.make_way(alarm.told.pop(0))
            progress = self.agent.cycle()
            self._publish()
            code = self._leaves(progress)
            if code is not None:
                return self._close(progress, code)
            alarm.wait(self.agent.next_instant() - self._clock())

    def _greet(self) -> None:
        agent, states = self.agent, self.agent.ledger.states(self._plan.tasks)
        pool = agent.book.pool
        over = sum(state.over for state, _ in states.values())
        limit = "" if agent.allocation.end is None else f", {agent.allocation.end - self._clock():.0f} s left"
        self._say(
            f"{len(states)} tasks, {over} of them over; {len(pool.device_node)} devices on"
            f" {len(pool.node_names)} nodes{limit}; state in {self._wishes.state}"
        )

    def _leaves(self, progress: Progress) -> int | None:
        """The exit code where this link has nothing more to do; ``None``: continue.

        In a chain, exit code 0 says that the work is done, unless the link was asked to end before, or a file says
        it instead. So a link that can do no more waits for its time limit where it has no other way to say so.
        """
        if progress is Progress.OVER:
            return 0 if self._in_chain or not self._failed() else FAILED
        if progress is not Progress.IDLE:
            return None
        if not self.agent.has_nodes:
            return FAILED
        if not self._in_chain:
            return UNFINISHED
        return 0 if self.agent.told or self._wishes.done_file else None

    def _failed(self) -> int:
        return sum(state in (TaskState.FAILED, TaskState.SKIPPED) for state, _ in self.agent.states.values())

    def _close(self, progress: Progress, code: int) -> int:
        states = [state for state, _ in self.agent.states.values()]
        left = sum(not state.over for state in states)
        why = f"{states.count(TaskState.SUCCEEDED)} tasks succeeded, {self._failed()} failed, {left} are left"
        if progress is Progress.OVER and self._wishes.done_file is not None:
            self._touch(self._wishes.done_file)
        self._say(why)
        self._publish(at_once=True)
        self.agent.close(why)
        os.close(self._lock)
        return code

    def _touch(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError as error:
            raise ConfigError(
                str(path), f"cannot create the file that ends the chain: {error.strerror}"
            ) from error

    def _publish(self, *, at_once: bool = False) -> None:
        now = self._clock()
        if not at_once and now - self._published < _PUBLISH_EVERY:
            return
        self._published = now
        tasks = {task.name: task for task in self._plan.tasks}
        try:
            folder = self.agent.world.folder
            publish(folder.status, document(tasks, self.agent.ledger, now, folder))
            self._unpublished = ""
        except OSError as error:
            if str(error) != self._unpublished:
                self.agent.write(Remark(now, f"the status could not be written: {error}"))
            self._unpublished = str(error)

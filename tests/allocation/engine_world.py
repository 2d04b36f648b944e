"""A link without Slurm: a clock that the test sets, a scripted engine, devices that are only counted."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.dispatch import DispatchRules, Moves, dispatch
from mirage.allocation.engine.agent import Agent, Progress
from mirage.allocation.engine.allocation_table import AllocationTable, nothing_known, part_of, task_table
from mirage.allocation.engine.dependencies import AgentDependencies, AgentSettings
from mirage.allocation.engine.discovery import Allocation, Device, NodeFound
from mirage.allocation.engine.entries import LifeBegan, PoolSeen
from mirage.allocation.engine.journal import JournalReader, JournalWriter, StateFolder
from mirage.allocation.engine.plan import TaskSpec, WorkPlan
from mirage.allocation.engine.situation import Situation
from mirage.allocation.engine.steps import Ending, EngineRefused, StartedStep
from mirage.allocation.engine.task_states import TaskStates
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.pool import Placement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from mirage.allocation.engine.steps import Launch
    from mirage.domain.pool import PoolView

EPOCH = 1_700_000_000.0
SLOW = ("KILL",)
"""Signals that end a step immediately although it needs time to save."""


@dataclass
class FakeJobs:
    """Slurm's word on jobs."""

    running: set[int] = field(default_factory=set)
    answers: bool = True

    def job_runs(self, job: int) -> bool:
        if not self.answers:
            raise ClusterUnavailable("squeue: no answer")
        return job in self.running


@dataclass
class FakeEngine:
    """Steps end when the test says so; nothing runs."""

    name: str = "fake"
    living: dict[str, Launch] = field(default_factory=dict)
    ended: dict[str, Ending] = field(default_factory=dict)
    launched: list[Launch] = field(default_factory=list)
    signals: list[tuple[str, str]] = field(default_factory=list)
    refusing: bool = False
    obeys: tuple[str, ...] = ("USR1", "TERM", "KILL")
    """Signals that end a step immediately."""
    orphans: set[str] = field(default_factory=set)
    begins: dict[str, float | None] = field(default_factory=dict)
    """When the command of a step begins; of those that are not here as it is launched."""

    def launch(self, launch: Launch) -> StartedStep:
        if self.refusing:
            raise EngineRefused("no such thing")
        self.launched.append(launch)
        self.living[launch.key] = launch
        return StartedStep(launch.key, launch.path, 1)

    def poll(self, step: StartedStep) -> Ending | None:
        return self.ended.get(step.key)

    def began(self, step: StartedStep) -> float | None:
        return self.begins.get(step.key, 0.0)

    def signal(self, step: StartedStep, name: str) -> None:
        self.signals.append((step.key, name))
        if name in self.obeys and step.key not in self.ended:
            self.finish(step.key, {"KILL": 137, "TERM": 143}.get(name, 0))

    def find(self, wanted: Sequence[tuple[str, Path]]) -> dict[str, StartedStep]:
        return {
            key: StartedStep(key, path, 1) for key, path in wanted if key in self.living and key not in self.ended
        }

    def finish(self, key: str, code: int = 0, **more: object) -> None:
        self.ended[key] = Ending(code, **({"began": True} | more))  # type: ignore[arg-type]


def first_fit(view: PoolView) -> Moves:
    """FIFO, first fit over whole nodes in turn: short enough to be seen to be right."""
    free, cpus, memory = view.free.copy(), view.free_cpus.copy(), view.free_memory_mb.copy()
    starts = []
    for row in view.pending:
        if view.task_node[row] >= 0:
            continue
        found = _place(view, int(row), free, cpus, memory)
        if found is not None:
            starts.append(found)
    return Moves(tuple(starts))


class FirstFit:
    """The same as a placement policy: nothing of it has to be compiled."""

    name = "first-fit"

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        free, cpus, memory = view.free.copy(), view.free_cpus.copy(), view.free_memory_mb.copy()
        starts = []
        for row in order:
            found = _place(view, int(row), free, cpus, memory)
            if found is not None:
                starts.append(found)
            elif strict:
                break
        return tuple(starts)


@dataclass(frozen=True)
class ByScore:
    """An ordering policy defined by the test; without a formula the shortest remaining time runs first."""

    formula: Callable[[PoolView], NDArray[np.float64]] = lambda view: np.nan_to_num(view.remaining, nan=1e9)
    name: str = "made-up"

    def score(self, view: PoolView) -> NDArray[np.float64]:
        return self.formula(view)[view.pending]

    def static_scores(self, tasks: object) -> None:
        """Return no static scores."""


def preempting(ordering: ByScore | None = None, *, move: bool = False) -> Callable[[PoolView], Moves]:
    """The real decisions with preemption, over a placement policy that is not compiled."""
    chosen, placer, rules = ordering or ByScore(), FirstFit(), DispatchRules(preempt=True, move=move)
    return lambda view: dispatch(view, chosen, placer, rules)


def _place(view: PoolView, row: int, free: np.ndarray, cpus: np.ndarray, memory: np.ndarray) -> Placement | None:
    tasks, pool = view.tasks, view.pool
    count, share, most = int(tasks.devices[row]), float(tasks.share[row]), int(tasks.max_nodes[row])
    spec = TaskSpec("x", (), count, cpus=int(tasks.cpus[row]), memory_mb=int(tasks.memory_mb[row]))
    for nodes in itertools.combinations(range(len(pool.node_names)), 1 if count == 0 else most):
        chosen: list[int] = []
        for node in nodes:
            here = np.flatnonzero((pool.device_node == node) & (free >= share - 1e-9))
            chosen += [int(device) for device in here[: count - len(chosen)]]
        used = {node: sum(int(pool.device_node[device]) == node for device in chosen) for node in nodes}
        used = {node: part for node, part in used.items() if part or count == 0}
        needs = {node: part_of(spec, part) for node, part in used.items()}
        if len(chosen) == count and all(c <= cpus[n] and m <= memory[n] for n, (c, m) in needs.items()):
            free[chosen] -= share
            for node, (c, m) in needs.items():
                cpus[node] -= c
                memory[node] -= m
            return Placement(row, np.array(sorted(chosen), np.int32), np.array(sorted(used), np.int32))
    return None


@dataclass
class Site:
    """One state directory, one clock, and any number of links."""

    folder: StateFolder
    plan: WorkPlan
    now: float = EPOCH
    jobs: FakeJobs = field(default_factory=FakeJobs)
    said: list[str] = field(default_factory=list)
    lives: int = 0

    @classmethod
    def of(cls, path: Path, *tasks: TaskSpec) -> Site:
        folder = StateFolder(path)
        folder.make()
        return cls(folder, WorkPlan(path / "tasks.toml", tasks))

    def link(
        self,
        *,
        job: int = 1,
        nodes: int = 1,
        devices: int = 4,
        length: float | None = None,
        engine: FakeEngine | None = None,
        decide: object = first_fit,
        preempt: bool = False,
        quantum: float = math.inf,
        found: tuple[NodeFound, ...] = (),
    ) -> Agent:
        """A new life of an agent, in job ``job``; its job runs from now on."""
        self.lives += 1
        self.jobs.running.add(job)
        found = found or tuple(
            NodeFound(f"j{job}n{node}", 8, 1000, tuple(Device(index, "gpu:a100") for index in range(devices)))
            for node in range(nodes)
        )
        end = None if length is None else self.now + length
        allocation = Allocation(found, job, self.now, end)
        name = f"life{self.lives:04}"
        life = LifeBegan(self.now, name, job, 0, 0, f"host{job}", 4_000_000 + self.lives, 1, "boot", "fake", "")
        ledger, reader = TaskStates(), JournalReader(self.folder)
        ledger.fold(reader.news())
        ledger.fold_claims(self.folder.claimed())
        zero = min(ledger.zero, self.now)
        pool = allocation.pool()
        speeds = nothing_known(len(self.plan.tasks), 1)
        situation = Situation(self.plan, task_table(self.plan, pool, zero), speeds, zero)
        engine = engine or FakeEngine()
        journal = JournalWriter(self.folder, name)
        world = AgentDependencies(
            engine, self.folder, journal, reader, lambda: self.now, self.jobs, self.said.append
        )
        agent = Agent(
            life,
            self.plan,
            allocation,
            situation,
            AllocationTable(pool),
            ledger,
            AgentSettings(decide, preempt, quantum),  # type: ignore[arg-type]
            world,
        )
        agent.write(life)
        agent.write(
            PoolSeen(self.now, end, {node.name: [(d.index, d.kind) for d in node.devices] for node in found})
        )
        return agent

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def ledger(self) -> TaskStates:
        """Re-derived from what is on the disk."""
        ledger = TaskStates()
        ledger.fold(JournalReader(self.folder).news())
        ledger.fold_claims(self.folder.claimed())
        return ledger


def engine_of(agent: Agent) -> FakeEngine:
    engine = agent.world.engine
    assert isinstance(engine, FakeEngine)
    return engine


def task(name: str, **more: object) -> TaskSpec:
    return TaskSpec(name, ("true",), **more)  # type: ignore[arg-type]


def run_to_end(site: Site, agent: Agent, seconds: float = 60.0, cycles: int = 1000) -> Progress:
    """Let every step succeed after a while."""
    for _ in range(cycles):
        progress = agent.cycle()
        if progress is not Progress.GOING:
            return progress
        site.pass_time(seconds)
        for key in list(engine_of(agent).living):
            if key not in engine_of(agent).ended:
                engine_of(agent).finish(key)
    raise AssertionError("it does not end")

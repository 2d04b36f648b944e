"""Tasks that make room, at random: the engine against the simulated pool, and what holds whatever happens."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from allocation.engine_world import (
    SLOW,
    ByScore,
    FakeEngine,
    FirstFit,
    Site,
    preempting,
    task,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.allocation.ddl.dispatch import DispatchRules, dispatch
from mirage.allocation.ddl.simulation import SimulatedPool
from mirage.allocation.engine.agent import Progress
from mirage.allocation.engine.plan import Checkpoint, TaskSpec
from mirage.allocation.engine.status import bars, most_at_once
from mirage.allocation.engine.task_states import TaskState

if TYPE_CHECKING:
    from mirage.allocation.engine.agent import Agent
    from mirage.allocation.engine.steps import Ending, Launch, StartedStep


# the same policy in the simulated pool


@dataclass
class TimedEngine(FakeEngine):
    """Steps end when their work is done; they save immediately, and continue later where they stopped."""

    site: Site = None  # type: ignore[assignment]
    left: dict[str, float] = field(default_factory=dict)
    """By task."""
    since: dict[str, float] = field(default_factory=dict)

    def launch(self, launch: Launch) -> StartedStep:
        self.since[launch.key] = self.site.now
        return super().launch(launch)

    def poll(self, step: StartedStep) -> Ending | None:
        if step.key not in self.ended and self.ends(step.key) <= self.site.now:
            self.finish(step.key)
        return super().poll(step)

    def signal(self, step: StartedStep, name: str) -> None:
        self.left[_name(step.key)] -= self.site.now - self.since[step.key]
        super().signal(step, name)

    def ends(self, key: str) -> float:
        return self.since[key] + self.left[_name(key)]

    def next_end(self) -> float:
        return min(self.ends(key) for key in self.living.keys() - self.ended.keys())


def _name(key: str) -> str:
    return key.rpartition(".")[0]


Start = tuple[float, str, tuple[int, ...]]


def on_the_engine(site: Site, nodes: int, work: dict[str, float], decide: object) -> tuple[Agent, list[Start]]:
    engine = TimedEngine(site=site, left=dict(work))
    agent = site.link(nodes=nodes, engine=engine, decide=decide, preempt=True)
    begun = site.now
    while agent.cycle() is not Progress.OVER:
        told = 0
        while (told, len(engine.launched)) != (told := len(engine.signals), len(engine.launched)):
            agent.cycle()
        agent.cycle()
        agent.cycle()
        site.now = engine.next_end()
    pool, starts = agent.book.pool, list[Start]()
    for tries in site.ledger().attempts.values():
        for each in tries.values():
            assert each.start is not None
            held = [
                row
                for row, (node, index) in enumerate(zip(pool.device_node, pool.device_index, strict=True))
                if index in (each.parts or {}).get(pool.node_names[node], ())
            ]
            starts.append((each.start - begun, each.task, tuple(held)))
    return agent, sorted(starts)


def in_the_simulation(agent: Agent, work: dict[str, float], ordering: ByScore) -> list[Start]:
    """Those that make room go first; then it is decided who starts."""
    table = agent.situation.table
    tasks = replace(table, work=np.array([work[name] for name in table.name]))
    rules, placer, starts = DispatchRules(preempt=True), FirstFit(), list[Start]()
    pool = SimulatedPool(tasks, agent.book.pool, agent.situation.speeds, rules)
    more = True
    while more:
        while (moves := dispatch(pool.view(), ordering, placer, rules)).preemptions:
            for row in moves.preemptions:
                pool.preempt(row)
        for placement in moves.starts:
            starts.append((pool.now, tasks.name[placement.task], tuple(map(int, placement.devices))))
            pool.start(placement)
        more = pool.advance()
    return sorted(starts)


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[TaskSpec], dict[str, float]]:
    tasks, work = list[TaskSpec](), dict[str, float]()
    for number in range(draw(st.integers(2, 9))):
        name = f"t{number}"
        work[name] = float(draw(st.integers(1, 12)))
        after = (f"t{draw(st.integers(0, number - 1))}",) if number and draw(st.booleans()) else ()
        devices = draw(st.integers(1, 4))
        free = Checkpoint("USR1", 1.0, 0.0) if draw(st.booleans()) else None
        tasks.append(task(name, devices=devices, expected=work[name], after=after, checkpoint=free))
    return tasks, work


@given(plans(), st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_engine_and_simulated_pool_start_the_same_tasks_at_the_same_instants_on_the_same_devices(
    plan: tuple[list[TaskSpec], dict[str, float]], nodes: int
) -> None:
    tasks, work = plan
    with tempfile.TemporaryDirectory() as folder:
        site = Site.of(Path(folder), *tasks)
        agent, real = on_the_engine(site, nodes, work, preempting())
        assert real == in_the_simulation(agent, work, ByScore())
        assert max(most_at_once(bars(site.ledger())).values()) <= 1.0


# whatever happens


class Story:
    """Random events in one job; what must hold after each of them."""

    def __init__(self, folder: Path, draw: st.DrawFn) -> None:
        self.draw = draw
        tasks = [
            task(
                f"t{number}",
                devices=draw(st.integers(1, 4)),
                expected=float(draw(st.integers(1, 500))),
                retries=100,
                checkpoint=Checkpoint("USR1", 50, 0) if draw(st.integers(0, 3)) else None,
                after=(f"t{draw(st.integers(0, number - 1))}",) if number and draw(st.booleans()) else (),
            )
            for number in range(7)
        ]
        self.site = Site.of(folder, *tasks)
        self.engine = FakeEngine(obeys=SLOW)
        self.move, self.quantum = draw(st.booleans()), draw(st.sampled_from([20.0, 1e9]))
        self.ordering = draw(
            st.sampled_from([ByScore(), ByScore(lambda view: view.served), ByScore(lambda view: -view.remaining)])
        )
        self.agent = self.link()

    def link(self) -> Agent:
        decide = preempting(self.ordering, move=self.move)
        return self.site.link(nodes=2, engine=self.engine, decide=decide, preempt=True, quantum=self.quantum)

    def step(self) -> None:
        self.site.pass_time(self.draw(st.sampled_from([0, 1, 15, 60])))
        event = self.draw(st.sampled_from(["cycle", "cycle", "cycle", "end", "end", "save", "restart"]))
        alive = sorted(self.engine.living.keys() - self.engine.ended.keys())
        saving = [key for key, name in self.engine.signals if name == "USR1" and key in alive]
        if event == "end" and alive:
            self.engine.finish(self.draw(st.sampled_from(alive)), self.draw(st.sampled_from([0, 1])))
        elif event == "save" and saving:
            self.engine.finish(self.draw(st.sampled_from(saving)), 1)
        elif event == "restart":
            self.agent.world.journal.close()
            self.agent = self.link()
        self.agent.cycle()
        self.check()

    def check(self) -> None:
        alive = [launch for key, launch in self.engine.living.items() if key not in self.engine.ended]
        names = [launch.environment["MIRAGE_TASK"] for launch in alive]
        assert len(names) == len(set(names)), f"twice at the same time: {names}"
        held = [
            (node, device)
            for launch in alive
            for node, variables in launch.visible.items()
            for device in variables["CUDA_VISIBLE_DEVICES"].split(",")
        ]
        assert len(held) == len(set(held)), f"oversubscribed: {held}"
        told = [key for key, name in self.engine.signals if name == "USR1"]
        assert len(told) == len(set(told)), f"two signals: {told}"
        plan = self.site.plan.rows
        assert all(self.site.plan.tasks[plan[_name(key)]].checkpoint for key in told)

    def close(self) -> None:
        """Left in peace, all come to their ends, those too that made room."""
        for _ in range(400):
            if self.agent.cycle() is Progress.OVER:
                break
            self.check()
            self.site.pass_time(30)
            told = {key for key, name in self.engine.signals if name == "USR1"}
            for key in list(self.engine.living.keys() - self.engine.ended.keys()):
                self.engine.finish(key, 1 if key in told else 0)
        assert all(state is TaskState.SUCCEEDED for state, _ in self.agent.states.values())


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_happens_nothing_is_oversubscribed_lost_or_told_twice(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder), data.draw)
        for _ in range(data.draw(st.integers(1, 40))):
            story.step()
        story.close()

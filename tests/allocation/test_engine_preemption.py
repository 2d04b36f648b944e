"""Tasks that make room for others on the engine: who is told, when, how often, and what comes of them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from allocation.engine_world import ByScore, FakeEngine, FirstFit, Site, engine_of, preempting, run_to_end, task
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.allocation.ddl.dispatch import Rules, dispatch
from mirage.allocation.ddl.simulation import SimulatedPool
from mirage.allocation.engine.agent import Progress
from mirage.allocation.engine.entries import Result
from mirage.allocation.engine.ledger import TaskState
from mirage.allocation.engine.plan import Checkpoint, TaskSpec
from mirage.allocation.engine.status import bars, document, most_at_once

if TYPE_CHECKING:
    from mirage.allocation.engine.agent import Agent
    from mirage.allocation.engine.steps import Ending, Launch, Step
    from mirage.domain.pool import PoolView

SLOW = ("KILL",)
"""What a step obeys at once that takes its time to save."""


def results(site: Site, name: str) -> list[Result]:
    return [attempt.ended.result for attempt in site.ledger().of(name) if attempt.ended]


def keys(agent: Agent) -> list[str]:
    return [launch.key for launch in engine_of(agent).launched]


def saver(name: str, expected: float, devices: int = 1, **more: object) -> TaskSpec:
    return task(name, expected=expected, devices=devices, checkpoint=Checkpoint("USR1", 100, 0), **more)


def gate() -> TaskSpec:
    """What waits for it comes later than the others."""
    return task("gate", devices=0, expected=1.0)


def test_one_that_saves_keeps_its_device_until_it_has_ended_and_is_told_once(tmp_path: Path) -> None:
    site = Site.of(tmp_path, gate(), saver("low", 1000), task("high", expected=50.0, after=("gate",)))
    agent = site.link(devices=1, engine=FakeEngine(obeys=SLOW), decide=preempting(), preempt=True)
    agent.cycle()
    site.pass_time(200)
    engine_of(agent).finish("gate.1")
    for _ in range(5):
        agent.cycle()
        site.pass_time(10)
    assert engine_of(agent).signals == [("low.1", "USR1")]
    assert keys(agent) == ["gate.1", "low.1"]
    row = document({spec.name: spec for spec in site.plan.tasks}, site.ledger(), site.now)["tasks"][1]
    assert (row["state"], row["saving"], row["stopping"]) == (
        "running",
        True,
        "makes room for a task that comes first",
    )
    engine_of(agent).finish("low.1", 3)
    agent.cycle()
    assert keys(agent)[-1] == "high.1"
    assert agent.states["low"] == (TaskState.PENDING, "makes room for a task that comes first")
    engine_of(agent).finish("high.1")
    agent.cycle()
    assert keys(agent)[-1] == "low.2"
    engine_of(agent).finish("low.2")
    assert agent.cycle() is Progress.OVER
    assert results(site, "low") == [Result.PREEMPTED, Result.SUCCEEDED]
    ledger = site.ledger()
    assert (ledger.failures("low"), ledger.preemptions("low"), ledger.served("low")) == ([], 1, 250.0)
    assert most_at_once(bars(ledger)) == {"j1n0:0": 1.0}


def test_nobody_else_is_told_for_the_same_one_and_what_is_free_is_used_meanwhile(tmp_path: Path) -> None:
    """``wide`` needs a whole node; ``small`` comes after it, and fits beside ``stays``, which goes on."""
    site = Site.of(
        tmp_path,
        gate(),
        saver("goes", 5000, 4),
        saver("stays", 2000, 3),
        task("wide", expected=100.0, devices=4, after=("gate",)),
        task("small", expected=200.0, after=("gate",)),
    )
    agent = site.link(nodes=2, engine=FakeEngine(obeys=SLOW), decide=preempting(), preempt=True, quantum=10)
    agent.cycle()
    engine_of(agent).finish("gate.1")
    for _ in range(5):
        agent.cycle()
        site.pass_time(10)
    assert engine_of(agent).signals == [("goes.1", "USR1")]
    assert keys(agent)[3:] == ["small.1"]
    engine_of(agent).finish("goes.1")
    agent.cycle()
    assert keys(agent)[4:] == ["wide.1"]


def test_what_is_kept_for_one_that_waits_for_a_device_is_not_given_away(tmp_path: Path) -> None:
    """Three devices are free, the fourth is about to be: a task behind must not begin on the three."""
    site = Site.of(
        tmp_path,
        gate(),
        saver("goes", 5000),
        task("wide", expected=100.0, devices=4, after=("gate",)),
        task("behind", expected=200.0, devices=3, after=("gate",)),
    )
    agent = site.link(engine=FakeEngine(obeys=SLOW), decide=preempting(), preempt=True, quantum=10)
    agent.cycle()
    engine_of(agent).finish("gate.1")
    for _ in range(5):
        agent.cycle()
        site.pass_time(10)
    assert keys(agent) == ["gate.1", "goes.1"]
    engine_of(agent).finish("goes.1")
    agent.cycle()
    assert keys(agent)[2:] == ["wide.1"]


def test_without_a_checkpoint_nobody_is_told_whatever_the_policy_says(tmp_path: Path) -> None:
    def ruthless(view: PoolView) -> object:
        moves = preempting()(view)
        return replace(moves, preemptions=tuple(int(row) for row in view.running))

    for decide in (preempting(), ruthless):
        site = Site.of(
            tmp_path / str(id(decide)), gate(), task("low"), task("high", expected=5.0, after=("gate",))
        )
        agent = site.link(devices=1, decide=decide, preempt=True)
        agent.cycle()
        engine_of(agent).finish("gate.1")
        agent.cycle()
        assert engine_of(agent).signals == []
        assert keys(agent) == ["gate.1", "low.1"]


def test_without_preempt_nobody_is_told(tmp_path: Path) -> None:
    site = Site.of(tmp_path, gate(), saver("low", 1000), task("high", expected=5.0, after=("gate",)))
    agent = site.link(devices=1, decide=preempting())
    agent.cycle()
    engine_of(agent).finish("gate.1")
    agent.cycle()
    assert engine_of(agent).signals == []


def test_one_that_ignores_the_signal_is_killed_loses_its_work_and_is_left_alone_afterwards(tmp_path: Path) -> None:
    site = Site.of(
        tmp_path,
        gate(),
        saver("deaf", 1000),
        task("high", expected=50.0, after=("gate",)),
        task("later", expected=60.0, after=("high",)),
        task("last", expected=70.0, after=("later",)),
    )
    agent = site.link(devices=1, engine=FakeEngine(obeys=SLOW), decide=preempting(), preempt=True)
    agent.cycle()
    engine_of(agent).finish("gate.1")
    agent.cycle()
    site.pass_time(99)
    agent.cycle()
    assert engine_of(agent).signals == [("deaf.1", "USR1")]
    site.pass_time(2)
    agent.cycle()
    agent.cycle()
    assert engine_of(agent).signals[1:] == [("deaf.1", "KILL")]
    assert results(site, "deaf") == [Result.CUT_OFF]
    assert site.ledger().served("deaf") == 0.0
    assert site.ledger().failures("deaf") == []
    engine_of(agent).finish("high.1")
    agent.cycle()
    engine_of(agent).finish("later.1")
    agent.cycle()
    assert keys(agent)[-1] == "last.1"
    engine_of(agent).finish("last.1")
    agent.cycle()
    assert keys(agent)[-1] == "deaf.2"
    assert run_to_end(site, agent) is Progress.OVER
    assert results(site, "deaf") == [Result.CUT_OFF, Result.SUCCEEDED]


def test_a_device_that_is_not_let_go_of_even_by_kill_is_not_waited_for(tmp_path: Path) -> None:
    site = Site.of(
        tmp_path, gate(), saver("stuck", 5000), saver("goes", 4000), task("high", expected=5.0, after=("gate",))
    )
    agent = site.link(devices=2, engine=FakeEngine(obeys=()), decide=preempting(), preempt=True)
    agent.cycle()
    engine_of(agent).finish("gate.1")
    for _ in range(30):
        agent.cycle()
        site.pass_time(10)
    told = [key for key, name in engine_of(agent).signals if name == "USR1"]
    assert told == ["stuck.1", "goes.1"]
    engine_of(agent).finish("goes.1")
    agent.cycle()
    assert keys(agent)[-1] == "high.1"


def test_a_mind_that_changes_with_time_is_asked_after_each_quantum_only(tmp_path: Path) -> None:
    asked = list[float]()

    def least_served(view: PoolView) -> object:
        asked.append(view.now)
        return preempting(ByScore(lambda seen: seen.served))(view)

    site = Site.of(tmp_path, saver("a", 1000), saver("b", 1000))
    agent = site.link(devices=1, decide=least_served, preempt=True, quantum=300)
    for _ in range(62):
        agent.cycle()
        assert agent.next_instant() <= site.now + 5
        site.pass_time(5)
    assert [at for at in asked if at < 300] == [0.0]
    assert keys(agent) == ["a.1", "b.1"]
    assert results(site, "a") == [Result.PREEMPTED]


def test_an_agent_that_is_restarted_leaves_the_one_that_saves_its_grace(tmp_path: Path) -> None:
    site = Site.of(tmp_path, gate(), saver("low", 1000), task("high", expected=50.0, after=("gate",)))
    engine = FakeEngine(obeys=SLOW)
    first = site.link(devices=1, engine=engine, decide=preempting(), preempt=True)
    first.cycle()
    engine.finish("gate.1")
    first.cycle()
    first.world.journal.close()
    second = site.link(devices=1, engine=engine, decide=preempting(), preempt=True)
    site.pass_time(60)
    second.cycle()
    assert engine.signals == [("low.1", "USR1")]
    engine.finish("low.1")
    second.cycle()
    assert engine.launched[-1].key == "high.1"
    assert results(site, "low") == [Result.PREEMPTED]


def test_moved_where_that_makes_room(tmp_path: Path) -> None:
    """Two small ones on two nodes are in the way of one that needs a whole node: one is moved to the other."""
    site = Site.of(
        tmp_path,
        gate(),
        task("filler", devices=3, expected=55.0),
        saver("a", 50.0),
        saver("b", 60.0),
        task("wide", devices=4, expected=500.0, after=("gate",)),
    )
    for move in (False, True):
        site = replace(site, folder=type(site.folder)(tmp_path / str(move)))
        site.folder.make()
        agent = site.link(nodes=2, decide=preempting(move=move), preempt=True)
        agent.cycle()
        engine_of(agent).finish("filler.1")
        engine_of(agent).finish("gate.1")
        for _ in range(4):
            agent.cycle()
        started = keys(agent)
        assert ("wide.1" in started) is move
        assert [launch.key for launch in engine_of(agent).launched if launch.key.endswith(".2")] == (
            ["b.2"] if move else []
        )


# the same policy in the simulated pool


@dataclass
class TimedEngine(FakeEngine):
    """Steps end when their work is done; they save at once, and begin again where they were."""

    site: Site = None  # type: ignore[assignment]
    left: dict[str, float] = field(default_factory=dict)
    """By task."""
    since: dict[str, float] = field(default_factory=dict)

    def launch(self, launch: Launch) -> Step:
        self.since[launch.key] = self.site.now
        return super().launch(launch)

    def poll(self, step: Step) -> Ending | None:
        if step.key not in self.ended and self.ends(step.key) <= self.site.now:
            self.finish(step.key)
        return super().poll(step)

    def signal(self, step: Step, name: str) -> None:
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
    rules, placer, starts = Rules(preempt=True), FirstFit(), list[Start]()
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
        assert len(names) == len(set(names)), f"twice at once: {names}"
        held = [
            (node, device)
            for launch in alive
            for node, variables in launch.visible.items()
            for device in variables["CUDA_VISIBLE_DEVICES"].split(",")
        ]
        assert len(held) == len(set(held)), f"oversubscribed: {held}"
        told = [key for key, name in self.engine.signals if name == "USR1"]
        assert len(told) == len(set(told)), f"told twice: {told}"
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

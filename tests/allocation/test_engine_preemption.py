"""Tasks that make room for others on the engine: which get a signal, when, how often, and the result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from allocation.engine_world import (
    SLOW,
    ByScore,
    FakeEngine,
    Site,
    engine_of,
    preempting,
    run_to_end,
    task,
)

from mirage.allocation.engine.agent import Progress
from mirage.allocation.engine.entries import AttemptResult
from mirage.allocation.engine.plan import Checkpoint, TaskSpec
from mirage.allocation.engine.status import bars, document, most_at_once
from mirage.allocation.engine.task_states import TaskState

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.engine.agent import Agent
    from mirage.domain.pool import PoolView


def results(site: Site, name: str) -> list[AttemptResult]:
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
        "preempted by a task that comes first",
    )
    engine_of(agent).finish("low.1", 3)
    agent.cycle()
    assert keys(agent)[-1] == "high.1"
    assert agent.states["low"] == (TaskState.PENDING, "preempted by a task that comes first")
    engine_of(agent).finish("high.1")
    agent.cycle()
    assert keys(agent)[-1] == "low.2"
    engine_of(agent).finish("low.2")
    assert agent.cycle() is Progress.OVER
    assert results(site, "low") == [AttemptResult.PREEMPTED, AttemptResult.SUCCEEDED]
    ledger = site.ledger()
    assert (ledger.failures("low"), ledger.preemptions("low"), ledger.served("low")) == ([], 1, 250.0)
    assert most_at_once(bars(ledger)) == {"j1n0:0": 1.0}


def test_nobody_else_is_told_for_the_same_one_and_what_is_free_is_used_meanwhile(tmp_path: Path) -> None:
    """``wide`` needs a whole node; ``small`` comes after it, and fits next to ``stays``, which continues."""
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
    assert results(site, "deaf") == [AttemptResult.CUT_OFF]
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
    assert results(site, "deaf") == [AttemptResult.CUT_OFF, AttemptResult.SUCCEEDED]


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
    assert results(site, "a") == [AttemptResult.PREEMPTED]


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
    assert results(site, "low") == [AttemptResult.PREEMPTED]


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

"""One link's agent on a fake engine: what it starts, stops, tries again and leaves to the next link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from allocation.engine_world import FakeEngine, Site, engine_of, run_to_end, task

from mirage.allocation.ddl.dispatch import Moves
from mirage.allocation.engine.agent import Progress
from mirage.allocation.engine.entries import AttemptResult
from mirage.allocation.engine.plan import Checkpoint, Ranks
from mirage.allocation.engine.status import bars, document, most_at_once
from mirage.allocation.engine.task_states import MOST_REFUSALS, TaskState
from mirage.domain.pool import Placement

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.pool import PoolView


def results(site: Site, name: str) -> list[AttemptResult]:
    return [attempt.ended.result for attempt in site.ledger().of(name) if attempt.ended]


def test_only_what_fits_is_launched_and_all_of_it_runs(tmp_path: Path) -> None:
    site = Site.of(tmp_path, *(task(f"t{i}", devices=1 + i % 4) for i in range(12)))
    agent = site.link(devices=4)
    assert run_to_end(site, agent) is Progress.OVER
    assert max(most_at_once(bars(site.ledger())).values()) == 1.0
    assert all(results(site, spec.name) == [AttemptResult.SUCCEEDED] for spec in site.plan.tasks)


def test_a_task_sees_its_own_devices_on_each_of_its_nodes(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("one"), task("wide", devices=6, max_nodes=2, ranks=Ranks.DEVICE))
    agent = site.link(nodes=3)
    agent.cycle()
    one, wide = engine_of(agent).launched
    assert one.visible == {"j1n0": {"CUDA_VISIBLE_DEVICES": "0"}}
    assert wide.visible == {"j1n0": {"CUDA_VISIBLE_DEVICES": "1,2,3"}, "j1n1": {"CUDA_VISIBLE_DEVICES": "0,1,2"}}
    assert wide.ranks == {"j1n0": 3, "j1n1": 3}
    assert one.environment["MIRAGE_TASK"] == "one"


def test_shares_of_one_device_add_up_to_one(tmp_path: Path) -> None:
    site = Site.of(tmp_path, *(task(f"t{i}", share=0.5) for i in range(5)))
    agent = site.link(devices=2)
    agent.cycle()
    assert len(agent.running) == 4
    assert most_at_once(bars(site.ledger())) == {"j1n0:0": 1.0, "j1n0:1": 1.0}


def test_dependants_wait_and_are_skipped_where_what_they_wait_for_fails(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("c", after=("b",)), task("b", after=("a",)), task("a"))
    agent = site.link()
    agent.cycle()
    assert [launch.key for launch in engine_of(agent).launched] == ["a.1"]
    engine_of(agent).finish("a.1", 3)
    assert agent.cycle() is Progress.OVER
    assert agent.states["a"] == (TaskState.FAILED, "exit code 3")
    assert agent.states["c"] == (TaskState.SKIPPED, "waits for b, which has skipped")


def test_failures_are_tried_again_after_pauses_that_double(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a", retries=2))
    agent = site.link()
    starts = []
    for attempt in (1, 2, 3):
        while len(engine_of(agent).launched) < attempt:
            agent.cycle()
            site.pass_time(1)
        starts.append(site.now)
        engine_of(agent).finish(f"a.{attempt}", 1)
        agent.cycle()
    assert starts[1] - starts[0] >= 10
    assert starts[2] - starts[1] >= 20
    assert agent.cycle() is Progress.OVER
    assert results(site, "a") == [AttemptResult.FAILED] * 3


def test_a_hanging_task_is_ended_and_then_killed(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a", time_limit=100.0))
    agent = site.link(engine=FakeEngine(obeys=("KILL",)))
    agent.cycle()
    site.pass_time(101)
    agent.cycle()
    assert engine_of(agent).signals == [("a.1", "TERM")]
    site.pass_time(11)
    agent.cycle()
    assert engine_of(agent).signals[-1] == ("a.1", "KILL")
    assert agent.cycle() is Progress.OVER
    assert agent.states["a"][1] == "ran longer than its time_limit of 100 s"


def test_a_step_that_does_not_even_die_keeps_its_device(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a", time_limit=10.0), task("b"))
    agent = site.link(devices=1, engine=FakeEngine(obeys=()))
    for _ in range(20):
        agent.cycle()
        site.pass_time(30)
    assert [launch.key for launch in engine_of(agent).launched] == ["a.1"]
    assert engine_of(agent).signals.count(("a.1", "KILL")) > 5


def test_before_the_limit_tasks_save_or_end_and_what_cannot_end_is_not_begun(tmp_path: Path) -> None:
    saves = task("saves", checkpoint=Checkpoint("USR2", 60, 10), expected=5000.0)
    plain, long, unknown = task("plain"), task("long", expected=3000.0), task("late", after=("never",))
    site = Site.of(tmp_path, saves, plain, long, task("never", expected=3500.0), unknown)
    agent = site.link(length=3600, engine=FakeEngine(obeys=("USR2", "TERM")))
    site.pass_time(600)
    agent.cycle()
    assert {launch.key for launch in engine_of(agent).launched} == {"saves.1", "plain.1"}
    site.pass_time(3600 - 600 - 90 + 1)
    agent.cycle()
    assert engine_of(agent).signals == [("saves.1", "USR2")]
    site.pass_time(60)
    agent.cycle()
    agent.cycle()
    assert results(site, "saves") == [AttemptResult.CHECKPOINTED]
    assert results(site, "plain") == [AttemptResult.CUT_OFF]
    assert agent.cycle() is Progress.IDLE
    assert site.ledger().served("saves") > 2800


def test_told_to_make_way_it_saves_what_can_be_saved_and_begins_nothing(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a", checkpoint=Checkpoint()), task("b"), task("c"))
    agent = site.link(devices=2)
    agent.cycle()
    agent.make_way("SIGTERM")
    assert engine_of(agent).signals == [("a.1", "USR1")]
    assert agent.cycle() is Progress.GOING
    engine_of(agent).finish("b.1")
    assert agent.cycle() is Progress.IDLE
    assert len(engine_of(agent).launched) == 2
    assert results(site, "a") == [AttemptResult.CHECKPOINTED]


def test_told_twice_it_ends_everything(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a"))
    agent = site.link()
    agent.cycle()
    agent.make_way("SIGINT")
    agent.make_way("SIGINT")
    assert agent.cycle() is Progress.IDLE
    assert results(site, "a") == [AttemptResult.CUT_OFF]


def test_a_task_longer_than_any_link_is_given_up(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a"))
    first = site.link(job=1, length=1000)
    first.cycle()
    site.pass_time(975)
    first.cycle()
    first.cycle()
    assert results(site, "a") == [AttemptResult.CUT_OFF]
    site.jobs.running.clear()
    second = site.link(job=2, length=1000)
    assert second.cycle() is Progress.OVER
    assert "has no checkpoint" in second.states["a"][1]


def test_a_refused_step_is_said_tried_again_and_the_node_put_aside(tmp_path: Path) -> None:
    site = Site.of(tmp_path, *(task(f"t{i}") for i in range(6)))
    agent = site.link(nodes=2, devices=1)
    for _ in range(60):
        agent.cycle()
        for launch in engine_of(agent).launched:
            bad = "j1n0" in launch.ranks
            if launch.key not in engine_of(agent).ended:
                engine_of(agent).finish(launch.key, 1 if bad else 0, began=not bad, said="Unable to create step")
        site.pass_time(15)
    assert agent.cycle() is Progress.OVER
    assert list(site.ledger().lives["life0001"].aside) == ["j1n0"]
    assert all(state is TaskState.SUCCEEDED for state, _ in agent.states.values())
    assert any("Unable to create step" in text for text in site.said)


def test_where_every_node_refuses_none_is_put_aside_and_a_task_is_given_up_at_last(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a"))
    agent = site.link(nodes=2, engine=FakeEngine(refusing=True))
    for _ in range(1000):
        if agent.cycle() is Progress.OVER:
            break
        site.pass_time(60)
    assert len(results(site, "a")) == MOST_REFUSALS
    assert agent.has_nodes
    assert "no such thing" in agent.states["a"][1]


def test_tasks_of_a_failed_node_are_put_back_and_nothing_more_is_started_there(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a", devices=4), task("b", devices=4), task("c", devices=4))
    agent = site.link(nodes=2)
    agent.cycle()
    engine_of(agent).finish("a.1", 137, failed_nodes=("j1n0",))
    agent.cycle()
    agent.cycle()
    assert results(site, "a") == [AttemptResult.NODE_FAILED]
    assert agent.states["a"][0] is TaskState.PENDING
    assert run_to_end(site, agent) is Progress.OVER
    assert all("j1n0" not in launch.ranks for launch in engine_of(agent).launched[2:])
    assert results(site, "a")[-1] is AttemptResult.SUCCEEDED


def test_without_a_node_left_nothing_is_waited_for(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a"))
    agent = site.link()
    agent.cycle()
    engine_of(agent).finish("a.1", 137, failed_nodes=("j1n0",))
    assert agent.cycle() is Progress.IDLE
    assert not agent.has_nodes


def test_steps_that_die_of_their_jobs_end_have_not_failed(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a"))
    agent = site.link()
    agent.cycle()
    engine_of(agent).finish("a.1", 143, outside="its job is being ended")
    agent.cycle()
    assert results(site, "a") == [AttemptResult.CUT_OFF]
    assert agent.states["a"][0] is not TaskState.FAILED


def test_a_placement_that_takes_what_is_held_is_not_obeyed(tmp_path: Path) -> None:
    def careless(view: PoolView) -> Moves:
        first = np.array([0], np.int32)
        return Moves(tuple(Placement(int(row), first, first) for row in view.pending))

    site = Site.of(tmp_path, task("a"), task("b"))
    agent = site.link(decide=careless)
    agent.cycle()
    assert len(agent.running) == 1
    assert most_at_once(bars(site.ledger())) == {"j1n0:0": 1.0}


def _only(view: PoolView, row: int) -> Moves:
    here = np.array([0], np.int32)
    return Moves((Placement(row, here, here),) if row in view.pending and not len(view.running) else ())


def test_the_view_counts_what_was_saved_and_forgets_what_was_lost(tmp_path: Path) -> None:
    seen: list[PoolView] = []

    def watch(view: PoolView) -> Moves:
        seen.append(view)
        return _only(view, int(view.pending[0]))

    site = Site.of(tmp_path, task("a", checkpoint=Checkpoint(), expected=500.0), task("b", expected=100.0))
    agent = site.link(decide=watch)
    agent.cycle()
    site.pass_time(200)
    agent.make_way("SIGUSR1")
    agent.cycle()
    later = site.link(job=2, decide=watch)
    later.cycle()
    view = seen[-1]
    assert view.remaining.tolist() == [300.0, 100.0]
    assert view.served.tolist() == [200.0, 0.0]
    assert view.now == 200.0


def test_the_status_names_tasks_lanes_and_links(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a", devices=2), task("b", devices=4))
    agent = site.link(length=1000)
    agent.cycle()
    status = document({spec.name: spec for spec in site.plan.tasks}, site.ledger(), site.now)
    assert status["counts"]["running"] == 1
    assert status["lanes"].keys() == {"j1n0:0", "j1n0:1"}
    assert [row["state"] for row in status["tasks"]] == ["running", "pending"]
    assert status["links"][0]["limit"] == site.now + 1000
    assert not status["over"]

"""Several links share a state directory, overlap, die, restart: no task is lost or runs twice concurrently."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from allocation.engine_world import FakeEngine, FakeJobs, Site, engine_of, run_to_end, task
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.allocation.engine.agent import Agent, Progress
from mirage.allocation.engine.agent_runs import OpenRunState, standing_of
from mirage.allocation.engine.entries import AttemptResult, LifeBegan
from mirage.allocation.engine.plan import Checkpoint
from mirage.allocation.engine.status import bars, most_at_once
from mirage.allocation.engine.step_supervisor import boot_id, start_ticks
from mirage.allocation.engine.task_states import TaskState


def results(site: Site, name: str) -> list[AttemptResult | None]:
    return [attempt.ended.result if attempt.ended else None for attempt in site.ledger().of(name)]


def die(site: Site, agent: Agent) -> None:
    """Its job ends; nothing is written any more."""
    site.jobs.running.discard(agent.life.job)
    agent.world.journal.close()


def test_the_next_link_goes_on_with_what_was_saved_lost_and_never_begun(tmp_path: Path) -> None:
    names = ("saved", "lost", "left", "done")
    site = Site.of(tmp_path, task("saved", checkpoint=Checkpoint()), *(task(name) for name in names[1:]))
    first = site.link(job=1, devices=2)
    first.cycle()
    first.make_way("SIGUSR1")
    first.cycle()
    die(site, first)
    second = site.link(job=2, devices=4)
    assert run_to_end(site, second) is Progress.OVER
    assert results(site, "saved") == [AttemptResult.CHECKPOINTED, AttemptResult.SUCCEEDED]
    assert results(site, "lost") == [AttemptResult.LOST, AttemptResult.SUCCEEDED]
    assert results(site, "left") == [AttemptResult.SUCCEEDED]
    assert site.ledger().failures("lost") == []


def test_what_the_predecessor_still_runs_is_left_to_it(tmp_path: Path) -> None:
    site = Site.of(tmp_path, *(task(f"t{i}") for i in range(4)))
    first = site.link(job=1, devices=2)
    first.cycle()
    second = site.link(job=2, devices=4)
    second.cycle()
    assert {launch.key for launch in engine_of(second).launched} == {"t2.1", "t3.1"}
    for key in ("t2.1", "t3.1"):
        engine_of(second).finish(key)
    assert second.cycle() is Progress.GOING
    engine_of(first).finish("t0.1")
    engine_of(first).finish("t1.1", 1)
    first.cycle()
    site.pass_time(60)
    assert second.cycle() is Progress.OVER


def test_a_predecessor_does_not_wait_for_its_successor(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a"), task("b"))
    first = site.link(job=1, devices=1)
    first.cycle()
    site.pass_time(5)
    second = site.link(job=2, devices=1)
    second.cycle()
    engine_of(first).finish("a.1")
    assert first.cycle() is Progress.IDLE
    assert second.cycle() is Progress.GOING


def test_while_nobody_knows_whether_the_predecessor_runs_its_tasks_are_left_alone(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a"))
    first = site.link(job=1)
    first.cycle()
    die(site, first)
    site.jobs.answers = False
    second = site.link(job=2)
    assert second.cycle() is Progress.GOING
    assert engine_of(second).launched == []
    site.jobs.answers = True
    site.pass_time(60)
    second.cycle()
    assert [launch.key for launch in engine_of(second).launched] == ["a.2"]


def test_a_restarted_agent_follows_the_steps_that_live_and_tries_the_others_again(tmp_path: Path) -> None:
    """The same job: the agent was killed, its steps were not."""
    site = Site.of(tmp_path, task("lives"), task("ended"), task("gone"), task("saves", checkpoint=Checkpoint()))
    engine = FakeEngine()
    first = site.link(job=1, engine=engine)
    first.cycle()
    first.world.journal.close()
    del engine.living["gone.1"]
    engine.ended.clear()
    del engine.living["ended.1"]
    path = site.folder.step("ended", 1)
    path.with_name("ended.1.exit").write_text("0\n")
    path.with_name("ended.1.began").touch()
    second = site.link(job=1, engine=engine)
    second.cycle()
    assert [launch.key for launch in engine.launched[4:]] == ["gone.2"]
    assert results(site, "ended") == [AttemptResult.SUCCEEDED]
    assert most_at_once(bars(site.ledger()))["j1n0:0"] == 1.0
    for key in ("lives.1", "saves.1", "gone.2"):
        engine.finish(key)
    assert second.cycle() is Progress.OVER
    assert results(site, "lives") == [AttemptResult.SUCCEEDED]


def test_a_claim_without_another_word_is_an_attempt_that_never_was(tmp_path: Path) -> None:
    """Killed between the claim and the journal's entry."""
    site = Site.of(tmp_path, task("a"))
    first = site.link(job=1)
    assert site.folder.claim("a", 1, first.life.life)
    die(site, first)
    second = site.link(job=2)
    second.cycle()
    assert [launch.key for launch in engine_of(second).launched] == ["a.2"]
    assert results(site, "a") == [AttemptResult.LOST, None]


def test_the_plan_may_grow_between_links(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a"))
    first = site.link(job=1)
    assert run_to_end(site, first) is Progress.OVER
    site.plan = type(site.plan)(site.plan.source, (task("b", after=("a",)),))
    site.plan = type(site.plan)(site.plan.source, (task("a"), task("b", after=("a",))))
    second = site.link(job=2)
    assert run_to_end(site, second) is Progress.OVER
    assert [launch.key for launch in engine_of(second).launched] == ["b.1"]


def life(**more: object) -> LifeBegan:
    values = {"job": 1, "restarts": 0, "host": "here", "pid": 1, "ticks": 1, "boot": "b"} | more
    return LifeBegan(at=0, life="x", link=0, engine="srun", source="", **values)  # type: ignore[arg-type]


def test_who_is_alive_as_far_as_can_be_told() -> None:
    import os

    jobs = FakeJobs({2})
    own = life(boot=boot_id())
    me = life(boot=boot_id(), pid=os.getpid(), ticks=start_ticks(os.getpid()))
    assert standing_of(me, own, jobs) is OpenRunState.RUNS
    assert standing_of(life(boot=boot_id(), pid=os.getpid(), ticks=7), own, jobs) is OpenRunState.AGENT_DIED
    assert standing_of(life(boot="another"), own, jobs) is OpenRunState.GONE
    assert standing_of(life(job=2), own, jobs) is OpenRunState.RUNS
    assert standing_of(life(job=3), own, jobs) is OpenRunState.GONE
    assert standing_of(life(job=3), own, FakeJobs(answers=False)) is OpenRunState.UNKNOWN
    assert standing_of(life(restarts=0), life(restarts=1), jobs) is OpenRunState.GONE
    assert standing_of(life(job=0, host="there"), life(job=0), jobs) is OpenRunState.UNKNOWN


class Story:
    """Random events over up to two jobs at a time; invariants after each."""

    def __init__(self, folder: Path, draw: st.DrawFn) -> None:
        self.draw = draw
        tasks = [
            task(
                f"t{i}",
                devices=draw(st.integers(1, 3)),
                retries=100,
                checkpoint=Checkpoint() if draw(st.booleans()) else None,
                after=(f"t{draw(st.integers(0, i - 1))}",) if i and draw(st.booleans()) else (),
            )
            for i in range(6)
        ]
        self.site = Site.of(folder, *tasks)
        self.engines: dict[int, FakeEngine] = {}
        self.agents: dict[int, Agent] = {}
        self.jobs = 0

    def begin(self) -> None:
        if len(self.engines) < 2:
            self.jobs += 1
            self.engines[self.jobs] = FakeEngine(obeys=("KILL",))
            self.restart(self.jobs)

    def restart(self, job: int) -> None:
        """A new agent in a job that has none."""
        if job not in self.agents:
            self.agents[job] = self.site.link(job=job, devices=3, engine=self.engines[job])

    def kill_agent(self, job: int) -> None:
        if job in self.agents:
            self.agents.pop(job).world.journal.close()

    def end_job(self, job: int) -> None:
        self.kill_agent(job)
        self.site.jobs.running.discard(job)
        del self.engines[job]

    def finish(self, job: int) -> None:
        engine = self.engines[job]
        alive = sorted(engine.living.keys() - engine.ended.keys())
        if alive:
            engine.finish(self.draw(st.sampled_from(alive)), self.draw(st.sampled_from([0, 0, 1])))

    def make_way(self, job: int) -> None:
        if job in self.agents:
            self.agents[job].make_way("SIGTERM")

    def cycle(self, job: int) -> None:
        if job in self.agents:
            self.agents[job].cycle()

    def step(self) -> None:
        self.site.pass_time(self.draw(st.sampled_from([1, 11, 700])))
        if not self.engines:
            self.begin()
        job = self.draw(st.sampled_from(sorted(self.engines)))
        name = self.draw(
            st.sampled_from(
                [
                    "cycle",
                    "cycle",
                    "cycle",
                    "finish",
                    "finish",
                    "kill_agent",
                    "restart",
                    "end_job",
                    "make_way",
                    "begin",
                ]
            )
        )
        self.begin() if name == "begin" else getattr(self, name)(job)
        self.check()

    def check(self) -> None:
        """No task runs in two places and no device has two tasks at the same time, on the engines themselves."""
        alive = [
            (launch.environment["MIRAGE_TASK"], job, launch)
            for job, engine in self.engines.items()
            for key, launch in engine.living.items()
            if key not in engine.ended
        ]
        names = [name for name, _, _ in alive]
        assert len(names) == len(set(names)), f"twice at the same time: {names}"
        held = [
            (job, node, device)
            for _, job, launch in alive
            for node, variables in launch.visible.items()
            for device in variables["CUDA_VISIBLE_DEVICES"].split(",")
        ]
        assert len(held) == len(set(held)), f"oversubscribed: {held}"

    def close(self) -> None:
        """One more link, left in peace, finishes everything."""
        for job in list(self.engines):
            self.end_job(job)
        self.site.pass_time(700)
        last = self.site.link(job=999, devices=3)
        assert run_to_end(self.site, last, seconds=700) is Progress.OVER
        assert all(state is TaskState.SUCCEEDED for state, _ in last.states.values())


@given(st.data())
@settings(max_examples=60)
def test_whatever_happens_no_task_is_lost_and_none_runs_twice_at_once(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder), data.draw)
        for _ in range(data.draw(st.integers(1, 40))):
            story.step()
        story.close()


# What no link was too short for


@pytest.mark.parametrize("begins", [None, 900.0], ids=["never", "late"])
def test_task_that_hardly_began_in_a_link_is_tried_again(tmp_path: Path, begins: float | None) -> None:
    """Slurm does not answer: srun hangs, and its result arrives long after the link's time limit."""
    site = Site.of(tmp_path, task("a"))
    first = site.link(job=1, length=1_000)
    first.cycle()
    engine_of(first).begins["a.1"] = None if begins is None else site.now + begins
    engine_of(first).obeys = ()
    site.pass_time(975)
    first.cycle()
    site.pass_time(2_000)
    engine_of(first).finish("a.1", 137, began=begins is not None)
    first.cycle()
    (attempt,) = site.ledger().of("a")
    assert attempt.ended is not None
    assert attempt.ended.result is AttemptResult.CUT_OFF
    assert attempt.ended.ran == (0.0 if begins is None else 75.0)
    assert first.states["a"][0] is TaskState.PENDING
    second = site.link(job=2, length=1_000)
    second.cycle()
    assert [launch.key for launch in engine_of(second).launched] == ["a.2"]


def test_time_limit_counts_from_the_begin_of_the_command(tmp_path: Path) -> None:
    site = Site.of(tmp_path, task("a", time_limit=100.0))
    link = site.link(job=1)
    link.cycle()
    engine_of(link).begins["a.1"] = None
    site.pass_time(500)
    link.cycle()
    assert engine_of(link).signals == []
    engine_of(link).begins["a.1"] = site.now
    site.pass_time(99)
    link.cycle()
    assert engine_of(link).signals == []
    site.pass_time(2)
    link.cycle()
    assert engine_of(link).signals == [("a.1", "TERM")]

"""Which jobs are looked at, when and how often; the answers of the users' processes are the test's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fakes import chain
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.backends.agent_requests import AgentResponse, Verdict
from mirage.backends.marked_jobs import Adopter
from mirage.control.status import Status
from mirage.daemon.adopting import MOST_LOOKS, PAUSES, AdoptionWatch, unlinked_jobs
from mirage.domain.chain import ChainRecord
from mirage.domain.errors import ClusterUnavailable, NotPermitted
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.link import Link, LinkState
from mirage.domain.snapshot import JobColumns, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ADOPTED, PLAIN, FAULT = "adopted", "plain", "fault"
DAY = 86_400.0


def queue(jobs: Mapping[str, Sequence[int]], **more: object) -> Status:
    """These jobs by user; every second one runs."""
    users = tuple(jobs)
    rows = [(job, code) for code, user in enumerate(users) for job in jobs[user]]
    both = [_columns(rows[first::2]) for first in (0, 1)]
    return Status(0, "", Snapshot(0, both[0], both[1], (), users, (), (), **more))  # type: ignore[arg-type]


def _columns(rows: Sequence[tuple[int, int]]) -> JobColumns:
    zeros = np.zeros(len(rows), dtype=np.int64)
    columns = dict.fromkeys(JobColumns.__dataclass_fields__, zeros)
    ids, users = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1))
    return JobColumns(**columns | {"job_id": ids, "user": users})


@dataclass
class World:
    """A queue, and users' processes that answer as the test says."""

    folder: Path
    jobs: dict[str, list[int]] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    """What a job turns out to be; without it the process does not answer."""
    refuse: set[str] = field(default_factory=set)
    """Users for whom no process acts."""
    marks: set[int] = field(default_factory=set)
    asked: list[tuple[str, int]] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    time: float = 0.0
    stale: bool = False

    def watch(self, serves: object = lambda user: True) -> AdoptionWatch:
        adopter = Adopter(self.adopt, serves)  # type: ignore[arg-type]
        file = self.folder / "looked-at.json"
        return AdoptionWatch(adopter, self.status, file, self.tell, lambda: self.time)

    def status(self) -> Status:
        return queue(self.jobs, stale_since=0 if self.stale else ABSENT)

    def tell(self, user: str, text: str) -> None:
        self.told.append((user, text))

    def adopt(self, user: str, job: JobId) -> AgentResponse:
        assert job in self.jobs[user]
        self.asked.append((user, int(job)))
        if user in self.refuse:
            raise NotPermitted("no agent")
        match self.kinds.get(job):
            case "adopted" if job not in self.marks:
                self.marks.add(job)
                return AgentResponse(Verdict.DONE, job, text="c")
            case "adopted" | "plain":
                return AgentResponse(Verdict.DONE)
            case "fault":
                return AgentResponse(Verdict.REJECTED, text="--links: wrong")
            case "waits":
                return AgentResponse(Verdict.BLOCKED)
        raise ClusterUnavailable("no answer")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_links_and_jobs_of_others_are_no_candidates() -> None:
    tagged = Job(JobId(3), "svc", "alice", "", 1, 60, JobState.RUNNING, 0, tag="mirage:other:1")
    status = queue({"alice": [1, 2, 3, 4], "bob": [5]}, links={tagged.tag: tagged})
    link = Link(1, "mirage:svc:1", 0, LinkState.SUBMITTED, job_id=JobId(2))
    status = replace(status, chains=(ChainRecord(chain(), links=(link,)),))
    assert unlinked_jobs(status, ["alice", "carol"]) == {"alice": [4, 1]}


def test_each_job_is_asked_about_once_also_after_a_restart(world: World) -> None:
    world.jobs = {"alice": [1, 2, 3]}
    world.kinds = {1: ADOPTED, 2: PLAIN, 3: FAULT}
    assert world.watch().run() == "1 jobs became link 1 of a chain"
    again = world.watch()
    for _ in range(3):
        assert again.run() == ""
    assert Counter(world.asked) == Counter([("alice", 1), ("alice", 2), ("alice", 3)])
    assert [user for user, _ in world.told] == ["alice"]


def test_no_user_delays_the_others(world: World) -> None:
    world.jobs = {"mallory": list(range(1, 1_001)), "alice": [2_001], "bob": [2_002]}
    world.kinds = dict.fromkeys(range(3_000), PLAIN)
    world.watch().run()
    assert len(world.asked) == MOST_LOOKS
    assert {("alice", 2_001), ("bob", 2_002)} <= set(world.asked)


def test_user_without_a_process_is_passed_over_for_a_while(world: World) -> None:
    world.jobs, world.refuse = {"alice": [1, 2, 3]}, {"alice"}
    world.kinds = dict.fromkeys((1, 2, 3), PLAIN)
    watch = world.watch()
    watch.run()
    assert world.asked == [("alice", 3)]
    watch.run()
    assert len(world.asked) == 1
    world.refuse.clear()
    world.time += DAY
    watch.run()
    assert {job for _, job in world.asked} == {1, 2, 3}
    assert world.told == []


def test_process_that_never_answers_is_given_up_for_this_job(world: World) -> None:
    world.jobs = {"alice": [1]}
    answers = Adopter(lambda user, job: AgentResponse(Verdict.UNAVAILABLE, text="no daemon"), lambda user: True)
    watch = AdoptionWatch(answers, world.status, world.folder / "f", world.tell, lambda: world.time)
    for _ in range(2 * len(PAUSES)):
        watch.run()
        world.time += max(PAUSES) + 1
    assert len(world.told) == 1
    assert "no daemon" in world.told[0][1]


def test_mark_without_a_chain_is_told_once(world: World) -> None:
    """``mirage adopt`` was killed between the mark and the chain."""
    world.jobs = {"alice": [1]}
    tagged = Job(JobId(1), "svc", "alice", "", 1, 60, JobState.RUNNING, 0, tag="mirage:svc-x.4hq2zk7a:1")
    shown = [queue(world.jobs), *[queue(world.jobs, links={tagged.tag: tagged})] * 3]
    watch = AdoptionWatch(
        Adopter(world.adopt, lambda user: True), lambda: shown.pop(0), world.folder / "f", world.tell
    )
    for _ in range(4):
        watch.run()
    assert len(world.told) == 1
    assert "svc-x.4hq2zk7a" in world.told[0][1]


def test_job_that_waits_for_others_is_asked_about_again(world: World) -> None:
    world.jobs, world.kinds = {"alice": [1]}, {1: "waits"}
    watch = world.watch()
    for _ in range(10):
        watch.run()
        world.time += 1_000
    world.kinds[1] = ADOPTED
    watch.run()
    assert (world.marks, world.told) == ({1}, [])


def test_stale_snapshot_and_users_without_chains_are_not_looked_at(world: World) -> None:
    world.jobs, world.kinds = {"alice": [1]}, {1: ADOPTED}
    world.watch(serves=None).run()
    world.stale = True
    watch = world.watch()
    assert watch.busy, "a brief daemon stays for the first look"
    watch.run()
    assert world.asked == []
    assert not watch.busy


@pytest.mark.parametrize("content", ["", "{}", "[1e400]", "null", '["1", -1, 4294967296, 1.5]', "[" * 9_999])
def test_file_that_is_none_of_ours_counts_as_nothing(world: World, content: str) -> None:
    (world.folder / "looked-at.json").write_text(content)
    world.jobs, world.kinds = {"alice": [1]}, {1: ADOPTED}
    world.watch().run()
    assert world.marks == {1}


STEP = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["alice", "bob"]), st.sampled_from([ADOPTED, PLAIN, FAULT, ""])),
    st.tuples(st.just("end"), st.integers(0, 40), st.just("")),
    st.tuples(st.sampled_from(["run", "restart", "stale", "wait", "agent"]), st.just(""), st.just("")),
)


@given(st.lists(STEP, max_size=60))
@settings(max_examples=150, deadline=None)
def test_nothing_is_settled_twice_whatever_happens(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:  # type: ignore[type-arg]
    world = World(tmp_path_factory.mktemp("w"), {"alice": [], "bob": []})
    watch, last = world.watch(), 0
    for what, argument, kind in steps:
        match what:
            case "submit":
                last += 1
                world.jobs[argument].append(last)
                world.kinds[last] = kind
            case "end":
                world.jobs = {user: [job for job in jobs if job != argument] for user, jobs in world.jobs.items()}
            case "run":
                watch.run()
            case "restart":
                watch = world.watch()
            case "stale":
                world.stale = not world.stale
            case "wait":
                world.time += DAY
            case "agent":
                world.refuse ^= {"alice"}
    world.stale = False
    world.refuse.clear()
    for _ in range(30):
        world.time += DAY
        watch.run()
    answered = Counter(job for user, job in world.asked if world.kinds[job])
    twice = {job for job, times in answered.items() if times > 1}
    assert all(("alice", job) in world.asked for job in twice), "only a user without an agent is asked about again"
    assert len(world.told) == len({text for _, text in world.told})
    assert {job for jobs in world.jobs.values() for job in jobs if world.kinds[job] == ADOPTED} <= world.marks

"""Acts of a daemon that stands alone between the loop and Slurm: on links, and on nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import FakeCluster

from mirage.backends.links_only import JobIdentity, LinkGuard
from mirage.domain.errors import NotPermitted, UnknownJob
from mirage.domain.job import JobChange, JobId, JobRequest, JobState, SignalReach
from mirage.domain.link import LinkIdentity

TAG = "mirage:svc:5"
ACTS = [
    pytest.param(lambda guard, job_id: guard.cancel(job_id, "alice"), id="cancel"),
    pytest.param(lambda guard, job_id: guard.update(job_id, "alice", JobChange(nice=5)), id="nice"),
    pytest.param(lambda guard, job_id: guard.update(job_id, "alice", JobChange(held=True)), id="hold"),
    pytest.param(lambda guard, job_id: guard.signal(job_id, "alice", "TERM", reach=SignalReach.ALL), id="signal"),
]

Act = "Callable[[Actuator, JobId], None]"


class Watched:
    """A cluster of whose jobs the guard asks; ``asked`` counts the queries, and acts only mark the job."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.asked: list[JobId] = []
        self.guard = LinkGuard(self.cluster, self, self._identify)
        self.touched: list[JobId] = []

    def submit(self, request: JobRequest) -> JobId:
        return self.cluster.submit(request)

    def cancel(self, job_id: JobId, owner: str) -> None:
        self.touched.append(job_id)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        self.touched.append(job_id)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        self.touched.append(job_id)

    def _identify(self, job_id: JobId, owner: str) -> JobIdentity:
        self.asked.append(job_id)
        if job_id not in self.cluster.jobs:
            raise UnknownJob(str(job_id))
        job = self.cluster.jobs[job_id]
        return JobIdentity(job.user, job.tag, job.submit)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def link(watched: Watched, tag: str = TAG) -> JobId:
    """A link that a snapshot has shown."""
    job_id = watched.guard.submit(JobRequest("svc", "alice", 3_600, tag=tag))
    look(watched, job_id)
    return job_id


def look(watched: Watched, job_id: JobId) -> None:
    submit = watched.cluster.jobs[job_id].submit
    known = LinkIdentity(TAG, "alice", "svc", submit=submit)
    watched.guard.snapshot(expected={TAG: job_id}, identities={TAG: known})


def becomes(watched: Watched, job_id: JobId, **what: object) -> None:
    watched.cluster.jobs[job_id] = replace(watched.cluster.jobs[job_id], **what)  # type: ignore[arg-type]


@pytest.mark.parametrize("act", ACTS)
def test_guard_link_is_acted_on_after_one_query(watched: Watched, act: Act) -> None:
    job_id = link(watched)
    act(watched.guard, job_id)
    assert (watched.touched, watched.asked) == ([job_id], [job_id])


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    "what",
    [
        {"tag": "", "submit": 7, "name": "own16"},
        {"tag": "", "submit": 7},
        {"tag": "mine", "submit": 7},
        {"tag": "mirage:other:5"},
        {"tag": "mirage:svc:6", "submit": 7},
        {"user": "bob"},
    ],
    ids=str,
)
def test_guard_job_with_a_reused_id_is_left_alone(watched: Watched, act: Act, what: dict[str, object]) -> None:
    """The number was given again since the snapshot."""
    job_id = link(watched)
    becomes(watched, job_id, **what)
    with pytest.raises(NotPermitted, match=str(job_id)):
        act(watched.guard, job_id)
    assert watched.touched == []


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("tag", ["", "mine", "mirage:svc"])
def test_guard_job_that_no_snapshot_has_shown_needs_a_tag(watched: Watched, act: Act, tag: str) -> None:
    job_id = watched.cluster.submit(JobRequest("own", "alice", 3_600, tag=tag))
    with pytest.raises(NotPermitted, match="comment"):
        act(watched.guard, job_id)
    assert watched.touched == []
    becomes(watched, job_id, tag=TAG)
    act(watched.guard, job_id)
    assert watched.touched == [job_id]


@pytest.mark.parametrize("act", ACTS)
def test_guard_link_with_an_edited_comment_is_acted_on(watched: Watched, act: Act) -> None:
    job_id = link(watched)
    becomes(watched, job_id, tag="mine: do not touch")
    look(watched, job_id)
    act(watched.guard, job_id)
    assert (watched.touched, watched.asked) == ([job_id], [job_id])


def test_guard_requeued_link_bears_the_tag_of_the_link_before(watched: Watched) -> None:
    job_id = link(watched, tag="mirage:svc:4")
    watched.guard.cancel(job_id, "alice")
    assert watched.touched == [job_id]


def test_guard_link_that_is_gone_is_unknown(watched: Watched) -> None:
    job_id = link(watched)
    del watched.cluster.jobs[job_id]
    with pytest.raises(UnknownJob):
        watched.guard.cancel(job_id, "alice")


def test_guard_ended_link_is_no_reason_to_act_on_the_number(watched: Watched) -> None:
    job_id = link(watched)
    becomes(watched, job_id, tag="mine", state=JobState.COMPLETED, end=5)
    look(watched, job_id)
    with pytest.raises(NotPermitted):
        watched.guard.cancel(job_id, "alice")

"""Jobs with a chain's tag that its record does not know: a second daemon's, a repeated submission's, others'."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.control.stores import MemoryStore
from mirage.domain.chain import ChainStatus, DoneCondition
from mirage.domain.command import CancelChain, ResumeChain
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.link import LinkState
from mirage.provisioner.identities import TaggedJobs


def copied(service: Service) -> Service:
    """A second daemon on a copy of the first daemon's database, on the same cluster."""
    other = Service(service.cluster, chain_=service.record.chain)
    other.store = MemoryStore(service.record)
    other.crash()
    return other


def alive(cluster: FakeCluster, state: JobState) -> list[Job]:
    return [job for job in cluster.jobs.values() if job.state is state]


@pytest.mark.parametrize("wait", [0, HOUR])
def test_two_daemons_on_copies_of_a_store_do_not_go_on_side_by_side(wait: int) -> None:
    """Both submit the next link before either sees the other's job; if it starts immediately, both have begun."""
    cluster = FakeCluster(lambda request: Fate(wait=wait))
    first = Service(cluster, chain_=chain(2 * HOUR, DoneCondition(links=9)))
    first.cycle(0)
    first.cycle(wait + MIN)
    second = copied(first)
    running: list[int] = []
    for time in range(wait + 2 * MIN, 40 * HOUR, 10 * MIN):
        cluster.advance(time)
        before = dict(cluster.jobs)
        first.cycle(time)
        after, cluster.jobs = cluster.jobs, dict(before)
        second.cycle(time)
        cluster.jobs = after | {key: job for key, job in cluster.jobs.items() if before.get(key) is not job}
        running.append(len(alive(cluster, JobState.RUNNING)))
    assert max(running) <= (1 if wait else 2)
    assert all(before + after < 4 for before, after in pairwise(running)), "seen in the next cycle"
    assert (first.record.status, second.record.status) == (ChainStatus.PAUSED, ChainStatus.PAUSED)


def test_a_job_that_another_daemon_submitted_pauses_the_chain_and_takes_back_what_waits() -> None:
    cluster = FakeCluster(lambda request: Fate(wait=HOUR))
    service = Service(cluster, chain_=chain(2 * HOUR, DoneCondition(links=9)))
    service.cycle(0)
    service.cycle(MIN)
    (mine,) = cluster.jobs.values()
    cluster.jobs[900] = replace(mine, job_id=JobId(900))
    cluster._fates[900] = Fate(wait=HOUR)
    cluster._after[900] = ()
    service.cycle(2 * MIN)
    assert service.record.status is ChainStatus.PAUSED
    assert "900" in service.record.reason
    service.cycle(3 * MIN)
    assert cluster.jobs[mine.job_id].state is JobState.CANCELLED, "it would run next to the other"
    assert cluster.jobs[900].state is JobState.PENDING, "what was not submitted here is left alone"


def test_a_stranger_may_write_any_comment() -> None:
    cluster = FakeCluster(lambda request: Fate(wait=HOUR))
    service = Service(cluster)
    service.cycle(0)
    (mine,) = cluster.jobs.values()
    cluster.jobs[900] = replace(mine, job_id=JobId(900), user="mallory")
    cluster._fates[900] = Fate(wait=HOUR)
    cluster._after[900] = ()
    service.cycle(MIN)
    assert service.record.status is ChainStatus.ACTIVE
    assert cluster.jobs[900].state is JobState.PENDING


def test_a_submission_that_was_repeated_leaves_one_job() -> None:
    """The first try was still before the controller when the second was sent."""
    cluster = FakeCluster(lambda request: Fate(wait=HOUR))
    service = Service(cluster, chain_=chain(2 * HOUR, DoneCondition(links=9)))
    cluster.lose_question = True
    service.cycle(0)
    service.cycle(MIN)
    service.cycle(10 * MIN)
    (mine,) = cluster.jobs.values()
    cluster.jobs[900] = replace(mine, job_id=JobId(900))
    cluster._fates[900] = Fate(wait=HOUR)
    cluster._after[900] = ()
    service.cycle(20 * MIN)
    assert service.record.status is ChainStatus.ACTIVE
    assert cluster.jobs[900].state is JobState.CANCELLED
    assert cluster.jobs[mine.job_id].state is JobState.PENDING


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("wait", [0, HOUR])
def test_link_that_may_be_in_the_queue_without_its_mark_is_not_sent_again(replaced: bool, wait: int) -> None:
    cluster = FakeCluster(lambda request: Fate(wait=wait), comments_replaced=replaced)
    service = Service(cluster, chain_=chain(2 * HOUR, DoneCondition(exit_code=None, links=9)))
    for time in range(0, wait + 90 * MIN, 5 * MIN):
        service.cycle(time)
    cluster.lose_answer = True
    while cluster.lose_answer:
        service.cycle(cluster.time + 5 * MIN)
    service.crash()
    for time in range(cluster.time, cluster.time + HOUR, MIN):
        service.cycle(time)
    assert len(cluster.submissions) == 2
    assert (service.record.status is ChainStatus.PAUSED) == replaced
    if replaced:
        (lost,) = [
            job for job in cluster.jobs.values() if job.job_id not in {x.job_id for x in service.record.links}
        ]
        cluster.cancel(lost.job_id, lost.user)
        service.commands.put(ResumeChain(service.record.chain.chain_id, "alice"))
        service.cycle(cluster.time + MIN)
        service.cycle(cluster.time + MIN)
        assert (service.record.status, len(cluster.submissions)) == (ChainStatus.ACTIVE, 3)


@pytest.mark.parametrize("over", [True, False])
def test_job_that_is_requeued_after_its_link_ended_is_cancelled(over: bool) -> None:
    cluster = FakeCluster(lambda request: Fate(wait=MIN, runtime=HOUR))
    service = Service(cluster, chain_=chain(2 * HOUR, DoneCondition(exit_code=None, links=1 if over else 9)))
    for time in range(0, 2 * HOUR, MIN):
        cluster.advance(time)
        service.cycle(time)
    first = cluster.jobs[service.record.links[0].job_id]
    assert (first.state.finished, service.record.over) == (True, over)
    cluster.jobs[first.job_id] = replace(first, state=JobState.PENDING, submit=2 * HOUR, start=ABSENT, end=ABSENT)
    cluster._fates[first.job_id] = Fate(wait=HOUR)
    service.cycle(2 * HOUR + MIN)
    service.cycle(2 * HOUR + 2 * MIN)
    assert cluster.jobs[first.job_id].state is JobState.CANCELLED
    assert service.record.status is (ChainStatus.DONE if over else ChainStatus.ACTIVE)
    assert not any(link.state is LinkState.PENDING and link.index == 1 for link in service.record.links)


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING])
@pytest.mark.parametrize("over", [True, False])
def test_job_of_an_ended_link_that_a_controller_with_an_older_state_has_is_cancelled(
    over: bool, state: JobState
) -> None:
    """slurmctld started from an older copy of its state: the job waits or runs again, with its old submit time."""
    cluster = FakeCluster(lambda request: Fate(wait=MIN, runtime=HOUR))
    service = Service(cluster, chain_=chain(2 * HOUR, DoneCondition(exit_code=None, links=2 if over else 9)))
    for time in range(0, 2 * HOUR + 30 * MIN, MIN):
        cluster.advance(time)
        service.cycle(time)
    first, live = cluster.jobs[service.record.links[0].job_id], service.record.links[-1]
    again = 2 * HOUR + 30 * MIN
    start = ABSENT if state is JobState.PENDING else again
    cluster.jobs[first.job_id] = replace(first, state=state, start=start, end=ABSENT)
    cluster._fates[first.job_id] = Fate(wait=HOUR)
    for job_id in [link.job_id for link in service.record.live]:
        del cluster.jobs[job_id]
    submitted = len(cluster.jobs)
    service.cycle(again + MIN)
    assert cluster.jobs[first.job_id].state is JobState.CANCELLED
    assert len(cluster.jobs) == submitted, "no link is submitted while the job may still write"
    for time in range(again + 2 * MIN, again + HOUR, MIN):
        cluster.advance(time)
        service.cycle(time)
    assert live.job_id != service.record.links[-1].job_id or service.record.over


def test_job_whose_nodes_are_cleaned_up_after_its_end_is_left_alone() -> None:
    cluster = FakeCluster(lambda request: Fate(wait=MIN, runtime=HOUR))
    service = Service(cluster, chain_=chain(2 * HOUR, DoneCondition(exit_code=None, links=9)))
    for time in range(0, 2 * HOUR, MIN):
        cluster.advance(time)
        service.cycle(time)
    link = service.record.links[0]
    first = replace(cluster.jobs[link.job_id], state=JobState.RUNNING, tag=link.tag)
    snapshot = replace(service.loop.status.snapshot, links={link.tag: first})
    assert TaggedJobs(snapshot).returned_to(service.record) == ()


@pytest.mark.parametrize("cancelled_while_away", [True, False])
def test_lost_link_whose_job_is_shown_again_is_a_link_again(cancelled_while_away: bool) -> None:
    """A squeue that leaves out rows: the job ran all the time, and only its chain would end it."""
    cluster = FakeCluster(lambda request: Fate(wait=0))
    service = Service(cluster, chain_=chain(9 * HOUR, DoneCondition(links=9)))
    for time in (0, MIN, 2 * MIN):
        cluster.advance(time)
        service.cycle(time)
    running = cluster.jobs.pop(service.record.links[0].job_id)
    for time in range(3 * MIN, HOUR, MIN):
        service.cycle(time)
    assert service.record.links[0].state is LinkState.LOST
    if cancelled_while_away:
        service.commands.put(CancelChain(service.record.chain.chain_id, "alice"))
        service.cycle(HOUR)
    cluster.jobs[running.job_id] = running
    service.cycle(HOUR + MIN)
    if not cancelled_while_away:
        assert service.record.links[0].running
        assert cluster.jobs[running.job_id].state is JobState.RUNNING
        service.commands.put(CancelChain(service.record.chain.chain_id, "alice"))
        service.cycle(HOUR + 2 * MIN)
    assert cluster.jobs[running.job_id].state is JobState.CANCELLED
    assert not [job for job in cluster.jobs.values() if not job.state.finished]

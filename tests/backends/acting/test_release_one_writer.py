"""One writer on held links: none runs next to another, whichever process releases it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from backends.acting.test_release import Operated, Service, waiting
from fakes import HOUR, chain

from mirage.backends.operator import ReleaseCluster
from mirage.domain.chain import ChainStatus, DoneCondition, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.job import ABSENT, Dependency, DependencyKind, JobChange, JobId, JobState


@pytest.mark.parametrize(
    ("exit_code", "kind"), [(0, DependencyKind.AFTERNOTOK), (None, DependencyKind.AFTERANY)], ids=str
)
@pytest.mark.parametrize("sharing", ["", "OverSubscribe=YES"])
@pytest.mark.parametrize("steering", list(Steering))
def test_stock_of_one_writer_never_runs_together(
    steering: Steering, sharing: str, exit_code: int | None, kind: DependencyKind
) -> None:
    """And each dependency that the Operator sets is on earlier links of the chain, none of another kind."""
    slurm = waiting(2)
    slurm.sharing = sharing
    svc = replace(chain(done=DoneCondition(exit_code, links=3)), steering=steering)
    slurm.stock(svc, 1, 2, 3)
    record = Service(slurm, svc, "fixed:5h").run(300 * HOUR)
    assert record.status is ChainStatus.DONE
    assert [outcome.overlap for outcome in record.outcomes()] == [0, 0]
    assert [link.job_id for link in record.links] == [100, 101, 102]
    sent = {job_id: change.dependencies for job_id, change in slurm.changes if change.dependencies}
    looks_first = steering is Steering.AUTO  # which a job that is there already cannot
    bound = svc.method is Steering.PIN and not sharing and not looks_first
    expected = {101: (Dependency(kind, JobId(100)),), 102: (Dependency(kind, JobId(101)),)}
    assert sent == ({} if bound else expected), "a pin is bound to nodes instead"


@pytest.mark.parametrize("policy", [HandoverPolicy.NONE, HandoverPolicy.ON_START])
def test_held_jobs_keep_the_nodes_that_their_owner_names(policy: HandoverPolicy) -> None:
    slurm = waiting(2)
    svc = chain(done=DoneCondition(links=3), steering=Steering.PIN, handover=HandoverSettings(policy))
    slurm.stock(svc, 1, 2, 3)
    for number in (100, 101, 102):
        slurm.jobs[JobId(number)] = replace(slurm.jobs[JobId(number)], node_list="n7")
    Service(slurm, svc, "fixed:5h").run(300 * HOUR)
    assert not [change for _, change in slurm.changes if change.node_list is not None]


def running(slurm: Operated) -> list[JobId]:
    return [job.job_id for job in slurm.live() if job.state is JobState.RUNNING]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_held_link_that_its_owner_releases_runs_alone(cancelled: bool) -> None:
    """Also where a link between it and the one that runs is cancelled; the chain waits for its owner."""
    slurm = waiting(2)
    svc = chain(done=DoneCondition(links=9))
    slurm.stock(svc, 1, 2, 3, 4)
    service = Service(slurm, svc, "fixed:2h")
    service.run(4 * HOUR)
    assert running(slurm) == [100]
    slurm.update(JobId(102), "alice", JobChange(held=False))
    if cancelled:
        slurm.cancel(JobId(101), "alice")
    for time in range(4 * HOUR, 120 * HOUR, HOUR):
        slurm.advance(time)
        service.loop.cycle()
        assert len(running(slurm)) <= 1
    record = service.record
    assert record.status is ChainStatus.PAUSED
    assert record.reason.startswith("held links were released outside of Mirage: 102; hold or cancel them")
    assert (slurm.jobs[102].start != ABSENT) is cancelled, "link 2 is still held, or gone"


def test_a_released_link_that_is_held_again_is_stock_again() -> None:
    slurm = waiting(2)
    svc = chain(done=DoneCondition(links=3))
    slurm.stock(svc, 1, 2, 3)
    service = Service(slurm, svc, "fixed:2h")
    service.run(4 * HOUR)
    slurm.update(JobId(102), "alice", JobChange(held=False))
    assert service.run(5 * HOUR).status is ChainStatus.PAUSED
    slurm.update(JobId(102), "alice", JobChange(held=True))
    service.store.save(replace(service.record, status=ChainStatus.ACTIVE, reason=""))
    service.crash()
    record = service.run(300 * HOUR)
    assert record.status is ChainStatus.DONE
    assert [link.job_id for link in record.links] == [100, 101, 102]


def test_a_link_bound_to_nodes_is_let_go_without_dependencies() -> None:
    """Slurm plans no job with an open dependency, so the nodes would stay idle."""
    slurm, svc = waiting(), chain()
    slurm.stock(svc, 1, 2)
    cluster = ReleaseCluster(slurm, slurm)
    cluster.snapshot()
    cluster.submit(replace(svc.link_request(2), node_list="n1"))
    assert slurm.changes[0] == (101, JobChange(node_list="n1", dependencies=()))

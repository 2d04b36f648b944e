"""The simulated cluster keeps the ports' promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_trace import CLUSTER, DAY, HOUR, trace

from mirage.backends.simulated import PacedCluster, SimulatedCluster, SimulatedExecution
from mirage.domain.errors import SubmissionRejected, UnknownJob
from mirage.domain.job import JobChange, JobId, JobRequest, JobState
from mirage.domain.jobtable import JobTable, Names
from mirage.simulator.simulation import Simulation

NOON = 1_000_000 + 6 * DAY


def named_trace() -> JobTable:
    table = trace()
    return replace(table, name=Names.encode([f"job-{number}" for number in range(len(table.name))]))


@pytest.fixture(scope="module")
def warm() -> Simulation:
    simulation = Simulation(CLUSTER, named_trace())
    simulation.run_until(NOON)
    return simulation


@pytest.fixture
def cluster(warm: Simulation) -> SimulatedCluster:
    return SimulatedCluster(warm.copy())


LINK = JobRequest("service", "alice", 2 * HOUR, 1, tag="mirage:svc:1")


def test_a_submission_is_seen_under_its_tag_until_its_end_and_after(cluster: SimulatedCluster) -> None:
    job_id = cluster.submit(LINK)
    assert cluster.snapshot().links[LINK.tag].job_id == job_id
    cluster.advance(NOON + 5 * DAY)
    job = cluster.snapshot().links[LINK.tag]
    assert job.state is JobState.TIMEOUT
    assert job.end - job.start == LINK.limit


def test_whoever_looks_in_real_time_sees_what_jobs_are_called(cluster: SimulatedCluster) -> None:
    job_id = cluster.submit(LINK)
    seen = PacedCluster(cluster, cluster).snapshot()
    table = named_trace()
    names = {int(each): name for each, name in zip(table.job_id, table.name.decode(), strict=True)}
    labels = seen.labels.of([*seen.pending.job_id.tolist(), *seen.running.job_id.tolist()])
    assert labels.pop(job_id) == (LINK.name, "root")
    assert labels
    assert {found: name for found, (name, _) in labels.items()}.items() <= names.items()
    assert not len(cluster.snapshot().labels.job_id), "replays poll thousands of times and need no names"


def test_the_script_says_how_a_job_goes(warm: Simulation) -> None:
    cluster = SimulatedCluster(warm.copy(), lambda request: SimulatedExecution(100, JobState.FAILED, 3))
    cluster.submit(LINK)
    cluster.advance(NOON + 5 * DAY)
    job = cluster.snapshot().links[LINK.tag]
    assert (job.state, job.exit_code, job.end - job.start) == (JobState.FAILED, 3, 100)


def test_the_snapshot_adds_up(cluster: SimulatedCluster) -> None:
    snapshot = cluster.snapshot()
    (partition,) = snapshot.partitions
    assert snapshot.time == NOON
    assert partition.total == 6 == partition.idle + partition.allocated + partition.down
    assert partition.allocated == snapshot.running.nodes.sum()
    assert (snapshot.running.start <= NOON).all()
    assert (snapshot.pending.submit <= NOON).all()
    assert not snapshot.stale
    lean = cluster.snapshot(queue=False)
    assert (lean.time, len(lean.pending), len(lean.running)) == (NOON, 0, 0)


def test_recent_waits_are_of_jobs_already_started(cluster: SimulatedCluster) -> None:
    waits = cluster.recent_waits(50, "")
    assert len(waits) == 50
    assert (np.diff(waits.start) >= 0).all()
    assert waits.start[-1] <= NOON
    assert (waits.wait >= 0).all()
    running = cluster.snapshot().running
    latest = running.start.argmax()
    assert (
        waits.wait[-1] == running.start[latest] - running.submit[latest] or waits.start[-1] > running.start.max()
    )


def test_copies_go_their_own_way(cluster: SimulatedCluster) -> None:
    cluster.submit(LINK)
    twin = cluster.copy()
    twin.advance(NOON + DAY)
    assert cluster.now() == NOON
    assert twin.snapshot().links.keys() == cluster.snapshot().links.keys()
    cluster.advance(NOON + DAY)
    assert twin.snapshot().links[LINK.tag] == cluster.snapshot().links[LINK.tag]


def test_foresight_is_what_then_happens(cluster: SimulatedCluster) -> None:
    times = np.arange(NOON, NOON + DAY, 4 * HOUR)
    foreseen = cluster.start_times(LINK, times)
    for time, start in zip(times, foreseen, strict=True):
        twin = cluster.copy()
        twin.advance(int(time))
        twin.submit(LINK)
        twin.advance(int(start))
        job = twin.snapshot().links[LINK.tag]
        assert (job.state, job.start) == (JobState.RUNNING, start)


def test_refusals_carry_slurms_reason(cluster: SimulatedCluster) -> None:
    with pytest.raises(SubmissionRejected, match="Node"):
        cluster.submit(JobRequest("big", "alice", HOUR, 7))
    with pytest.raises(SubmissionRejected, match="Time"):
        cluster.submit(JobRequest("long", "alice", 3 * DAY, 1))


def test_cancelling(cluster: SimulatedCluster) -> None:
    job_id = cluster.submit(LINK)
    cluster.cancel(job_id, "alice")
    cluster.cancel(job_id, "alice")
    cluster.advance(NOON + HOUR)
    assert cluster.snapshot().links[LINK.tag].state is JobState.CANCELLED
    with pytest.raises(UnknownJob):
        cluster.cancel(JobId(10**9), "alice")


def test_a_pending_job_is_bound_to_nodes_and_let_go(cluster: SimulatedCluster) -> None:
    first = cluster.submit(LINK)
    while (before := cluster.snapshot().links[LINK.tag]).state is JobState.PENDING:
        cluster.advance(cluster.now() + HOUR)
    after = cluster.submit(replace(LINK, tag="mirage:svc:2", node_list=before.node_list))
    cluster.update(after, "alice", JobChange(node_list=""))
    assert cluster.snapshot().links["mirage:svc:2"].node_list == ""
    cluster.update(after, "alice", JobChange(node_list=before.node_list))
    cluster.advance(before.end)
    cluster.advance(before.end + HOUR)
    job = cluster.snapshot().links["mirage:svc:2"]
    assert (job.start, job.node_list) == (before.end, before.node_list)
    with pytest.raises(UnknownJob, match=str(first)):
        cluster.update(first, "alice", JobChange(node_list=""))


def test_an_update_to_nodes_that_are_not_there_is_refused(cluster: SimulatedCluster) -> None:
    job_id = cluster.submit(replace(LINK, held=True))
    with pytest.raises(SubmissionRejected, match="there is no node n77"):
        cluster.update(job_id, "alice", JobChange(node_list="n77"))


def test_an_estimate_for_an_idle_cluster_is_now() -> None:
    cluster = SimulatedCluster(Simulation(CLUSTER, start=1_000))
    assert cluster.estimate_start(LINK) == 1_000

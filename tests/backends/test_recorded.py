"""Recorded snapshots shown again: as they were, whatever is noted meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from backends.test_simulated_contract import CLUSTER, HOUR, NOON
from hypothesis import given
from hypothesis import strategies as st

from mirage.backends.recorded import NothingRecorded, RecordedCluster, RecordedTicks
from mirage.backends.simulated import SimulatedCluster
from mirage.domain.errors import UnknownJob
from mirage.domain.job import JobChange, JobId, JobRequest, JobState, SignalReach
from mirage.domain.snapshot import Snapshot
from mirage.simulator.simulation import Simulation

REQUEST = JobRequest("link", "alice", HOUR, 2, "cpu", tag="mirage:c:2")


def recording(hours: int = 4) -> list[Snapshot]:
    """A simulated cluster with one chain's first link, looked at each half hour."""
    cluster = SimulatedCluster(Simulation(CLUSTER, start=NOON))
    cluster.submit(replace(REQUEST, tag="mirage:c:1", limit=2 * HOUR))
    cluster.submit(JobRequest("other", "bob", 3 * HOUR, 2, "cpu"))
    seen = []
    for k in range(2 * hours):
        cluster.advance(NOON + k * HOUR // 2)
        seen.append(cluster.snapshot())
    return seen


@pytest.fixture
def cluster() -> RecordedCluster:
    return RecordedCluster(recording())


def test_all_is_shown_as_it_was() -> None:
    kept = recording()
    cluster = RecordedCluster(iter(kept))
    ticks = RecordedTicks(cluster)
    for snapshot in kept:
        shown = cluster.snapshot()
        assert cluster.now() == shown.time == snapshot.time
        assert shown.links == snapshot.links
        assert (shown.partitions, shown.users) == (snapshot.partitions, snapshot.users)
        for ours, theirs in ((shown.pending, snapshot.pending), (shown.running, snapshot.running)):
            np.testing.assert_array_equal(ours.job_id, theirs.job_id)
            np.testing.assert_array_equal(ours.start, theirs.start)
        assert ticks.wait(NOON, True) is (snapshot is not kept[-1])


def test_snapshots_are_read_one_at_a_time() -> None:
    read = 0

    def source() -> object:
        nonlocal read
        for snapshot in recording():
            read += 1
            yield snapshot

    cluster = RecordedCluster(source())  # type: ignore[arg-type]
    assert read == 1
    cluster.advance()
    assert read == 2


def test_nothing_recorded_is_said() -> None:
    with pytest.raises(NothingRecorded):
        RecordedCluster([])


def test_snapshots_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="order"):
        RecordedCluster(reversed(recording())).advance()


def test_without_the_queue_only_links(cluster: RecordedCluster) -> None:
    cluster.advance()
    shown = cluster.snapshot(queue=False)
    assert (len(shown.pending), len(shown.running), shown.partitions) == (0, 0, ())
    assert "mirage:c:1" in shown.links


def test_a_noted_submission_pends_and_changes_nothing_else(cluster: RecordedCluster) -> None:
    job_id = cluster.submit(REQUEST)
    before = cluster.snapshot()
    assert job_id < 0
    while cluster.advance():
        job = cluster.snapshot().links[REQUEST.tag]
        assert (job.job_id, job.state, job.submit) == (job_id, JobState.PENDING, NOON)
        assert job_id not in cluster.snapshot().pending.job_id
    assert before.links["mirage:c:1"].job_id > 0
    assert [(noted.time, noted.act, noted.request) for noted in cluster.noted] == [(NOON, "submit", REQUEST)]


def test_what_was_recorded_counts_more_than_what_was_noted(cluster: RecordedCluster) -> None:
    cluster.submit(replace(REQUEST, tag="mirage:c:1"))
    assert cluster.snapshot().links["mirage:c:1"].job_id > 0


def test_noted_jobs_are_held_niced_and_cancelled(cluster: RecordedCluster) -> None:
    job_id = cluster.submit(replace(REQUEST, held=True, nice=5))
    assert cluster.snapshot().links[REQUEST.tag].held
    cluster.update(job_id, "alice", JobChange(held=False, nice=0))
    job = cluster.snapshot().links[REQUEST.tag]
    assert (job.held, job.nice) == (False, 0)
    with pytest.raises(UnknownJob, match="PENDING"):
        cluster.signal(job_id, "alice", "USR1", reach=SignalReach.BATCH)
    cluster.advance()
    cluster.cancel(job_id, "alice")
    job = cluster.snapshot().links[REQUEST.tag]
    assert (job.state, job.end) == (JobState.CANCELLED, cluster.now())
    cluster.cancel(job_id, "alice")
    with pytest.raises(UnknownJob, match="CANCELLED"):
        cluster.update(job_id, "alice", JobChange(nice=1))
    assert [noted.act for noted in cluster.noted] == ["submit", "update", "cancel"]


def test_acts_on_recorded_jobs_are_noted_only(cluster: RecordedCluster) -> None:
    cluster.advance()
    job = cluster.snapshot().links["mirage:c:1"]
    assert job.state is JobState.RUNNING
    cluster.signal(job.job_id, "alice", "USR1", reach=SignalReach.BATCH)
    cluster.cancel(job.job_id, "alice")
    assert cluster.snapshot().links["mirage:c:1"] == job
    assert [(noted.act, noted.signal) for noted in cluster.noted] == [("signal", "USR1"), ("cancel", "")]


def test_unknown_jobs_are_said_to_be(cluster: RecordedCluster) -> None:
    for act in (
        lambda: cluster.cancel(JobId(60_000_000), "alice"),
        lambda: cluster.update(JobId(60_000_000), "alice", JobChange(nice=1)),
        lambda: cluster.signal(JobId(60_000_000), "alice", "USR1", reach=SignalReach.ALL),
    ):
        with pytest.raises(UnknownJob, match="60000000"):
            act()
    assert cluster.noted == ()


@given(st.lists(st.sampled_from(["submit", "advance", "cancel"]), max_size=30))
def test_ids_never_meet_and_the_record_never_changes(acts: list[str]) -> None:
    kept = [Snapshot.unseen(k) for k in range(40)]
    cluster = RecordedCluster(kept)
    ids: list[JobId] = []
    for k, act in enumerate(acts):
        if act == "submit":
            ids.append(cluster.submit(replace(REQUEST, tag=f"mirage:c:{k + 1}")))
        elif act == "cancel" and ids:
            cluster.cancel(ids[-1], "alice")
        elif act == "advance":
            cluster.advance()
    assert len(set(ids)) == len(ids)
    assert set(ids) == {job.job_id for job in cluster.snapshot().links.values()}
    assert all(not snapshot.links for snapshot in kept)

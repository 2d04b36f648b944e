"""Short events are kept: starts between two answers, periodically a whole snapshot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage.backends.wrappers import InstrumentedCluster
from mirage.bootstrap.records import SnapshotWatch
from mirage.domain.errors import ClusterUnavailable, StoreUnavailable
from mirage.domain.job import NEVER, Job, JobId, JobState
from mirage.domain.snapshot import JobColumns, Snapshot


def queue_at(time: int, running: dict[int, int], pending: tuple[int, ...] = ()) -> Snapshot:
    """``running``: start by job id; every job was submitted at 0."""

    def columns(ids: list[int], starts: list[int]) -> JobColumns:
        one = np.ones(len(ids), dtype=np.int64)
        job_id, start = np.array(ids, dtype=np.int64), np.array(starts, dtype=np.int64)
        return JobColumns(job_id, one * 0, one * 0, one * 0, one, one * 3_600, one * 0, one * 0, start, one, one)

    return Snapshot(
        time,
        columns(list(pending), [-1] * len(pending)),
        columns(list(running), list(running.values())),
        (),
        ("u",),
        ("p",),
        ("q",),
    )


class Kept:
    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.times: list[int] = []
        self.fault: Exception | None = None

    def add(self, jobs) -> None:
        self._check()
        self.jobs += jobs.job_id.tolist()

    def write(self, snapshot: Snapshot) -> None:
        self._check()
        self.times.append(snapshot.time)

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault


class Shown:
    """A cluster that shows one snapshot after the other; ``None``: it does not answer."""

    def __init__(self, *snapshots: Snapshot | None) -> None:
        self.snapshots = list(snapshots)

    def snapshot(self, **asked) -> Snapshot:
        assert asked["queue"], "starts are learned from the queue, whatever the predictor wants"
        shown = self.snapshots.pop(0)
        if shown is None:
            raise ClusterUnavailable("no route to host")
        return shown


def test_starts_are_noted_between_answers_however_far_apart() -> None:
    kept, took = Kept(), []
    shown = Shown(
        queue_at(100, {1: 50}, (2, 3)), queue_at(160, {1: 50, 2: 130}, (3,)), None, queue_at(280, {2: 130, 3: 200})
    )
    cluster = InstrumentedCluster(shown, SnapshotWatch(kept, kept, 100).seen, took.append)
    for answered in (True, True, False, True):
        if answered:
            cluster.snapshot(queue=False)
        else:
            with pytest.raises(ClusterUnavailable):
                cluster.snapshot(queue=False)
    assert kept.jobs == [2, 3]
    assert kept.times == [100, 280]
    assert len(took) == 4


def with_link(snapshot: Snapshot, state: JobState) -> Snapshot:
    """Link 2, which waits for the nodes of another one, or runs there."""
    start = -1 if state is JobState.PENDING else snapshot.time
    job = Job(JobId(2), "svc", "u", "p", 1, 3_600, state, 0, start, tag="mirage:svc:2", node_list="n1")
    return replace(snapshot, links={job.tag: job})


class Alternating(Shown):
    """Shows the queue only where it is asked for."""

    def snapshot(self, **asked) -> Snapshot:
        found = super().snapshot(**{**asked, "queue": True})
        empty = queue_at(found.time, {})
        return found if asked["queue"] else replace(found, pending=empty.pending, running=empty.running)


def test_between_whole_snapshots_the_links_are_new_and_the_queue_is_not() -> None:
    kept, links_seen = Kept(), []
    waits, runs = JobState.PENDING, JobState.RUNNING
    shown = Alternating(
        queue_at(100, {1: 50}, (3,)),
        with_link(queue_at(160, {1: 50}, (2, 3)), waits),
        with_link(queue_at(220, {2: 190, 3: 200}), runs),
        with_link(queue_at(700, {2: 190, 3: 200}), runs),
    )
    bound: list[int] = []

    def add(jobs) -> None:
        bound.extend(int(job) for job, at in zip(jobs.job_id, jobs.eligible, strict=True) if at == NEVER)
        kept.jobs += jobs.job_id.tolist()

    watch = SnapshotWatch(kept, kept, 100)
    kept.add = add  # type: ignore[method-assign]
    cluster = InstrumentedCluster(shown, watch.seen, lambda seconds: None, links_seen.append)
    found = [cluster.snapshot(queue=queue) for queue in (False, False, False, True)]
    assert [snapshot.time for snapshot in found] == [100, 160, 220, 700]
    assert [snapshot.running.job_id.tolist() for snapshot in found] == [[1], [1], [1], [2, 3]]
    assert [job.state for snapshot in found[1:] for job in snapshot.links.values()] == [waits, runs, runs]
    assert [snapshot.time for snapshot in links_seen] == [160, 220]
    assert (kept.times, sorted(kept.jobs)) == ([100, 700], [2, 3])
    assert bound == [2], "it waited for nodes by name: its wait says nothing of the queue"


@pytest.mark.parametrize(
    "fault", [StoreUnavailable("locked"), ValueError("bad rows"), TypeError("a fault of ours")]
)
def test_a_store_that_is_away_or_wrong_does_not_hide_the_cluster(fault: Exception) -> None:
    kept = Kept()
    kept.fault = fault
    shown = Shown(queue_at(100, {}, (2,)), queue_at(160, {2: 130}))
    cluster = InstrumentedCluster(shown, SnapshotWatch(kept, kept, 100).seen, lambda seconds: None)
    assert [cluster.snapshot().time, cluster.snapshot().time] == [100, 160]


def test_the_clock_set_back_archives_rather_than_waits() -> None:
    kept = Kept()
    watch = SnapshotWatch(kept, kept, 600)
    for time in (10_000, 10_100, 5_000, 5_100, 5_700):
        watch.seen(None, queue_at(time, {}))
    assert kept.times == [10_000, 5_000, 5_700]

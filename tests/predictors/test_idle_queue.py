"""An immediate start is predicted where no job waits and nodes are idle, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirage.domain.decision import Observation, RecentWaits, Standing, WaitForecast
from mirage.domain.job import ABSENT, NEVER, Job, JobId, JobRequest, JobState
from mirage.domain.objective import Weights
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.predictors.auto import Auto, Candidates, idle_start, no_job_waits, with_waiting_jobs
from mirage.predictors.registry import build_predictor

if TYPE_CHECKING:
    from typing import Any

NOW, HOUR = 1_000_000, 3_600


def queue(*jobs: tuple[str, int], idle: int = 3, links: tuple[Job, ...] = ()) -> Snapshot:
    """``jobs``: partition and eligible time of those that wait, numbered from 1."""
    names = ("cpu", "gpu")
    columns: dict[str, Any] = {
        name: np.zeros(len(jobs), dtype=np.int64) for name in JobColumns.__dataclass_fields__
    }
    columns["job_id"] = np.arange(1, len(jobs) + 1)
    columns["partition"] = np.array([names.index(partition) for partition, _ in jobs], dtype=np.int64)
    columns["eligible"] = np.array([eligible for _, eligible in jobs], dtype=np.int64)
    states = (PartitionState("cpu", 8, idle, 8 - idle, 0), PartitionState("gpu", 4, 4, 0, 0))
    tagged = {job.tag: job for job in links}
    return Snapshot(NOW, JobColumns(**columns), JobColumns.none(), states, ("u",), names, (), tagged)


def observed(snapshot: Snapshot, waits: int = 10 * HOUR, **request: Any) -> Observation:
    asked = JobRequest("s", "u", HOUR, **{"partition": "cpu"} | request)
    past = np.full(50, waits, dtype=np.int64)
    recent = RecentWaits(np.arange(NOW - 50, NOW), past, np.ones_like(past), np.full(50, HOUR), "cpu")
    return Observation(NOW, snapshot, None, asked, recent)


def link(number: int, **more: Any) -> Job:
    waiting = Job(JobId(number), "s", "u", "cpu", 1, HOUR, JobState.PENDING, 0, 0, 0)
    return replace(waiting, tag=f"mirage:c:{number}", **more)


IDLE = [queue(), queue(("gpu", 0)), queue(("cpu", NEVER)), queue(("cpu", 0), links=(link(1, node_list="n1"),))]
BUSY = [queue(("cpu", 0)), queue(("gpu", 0), ("cpu", NOW)), queue(("cpu", 0), links=(link(1),))]


@pytest.mark.parametrize("snapshot", IDLE, ids=["empty", "another partition", "depends", "bound to nodes"])
def test_no_job_waits(snapshot: Snapshot) -> None:
    assert no_job_waits(snapshot, "cpu")
    forecast = idle_start(observed(snapshot))
    assert forecast is not None
    assert set(forecast.starts) == {NOW}


@pytest.mark.parametrize("snapshot", BUSY, ids=["one waits", "since now", "a link waits"])
def test_another_job_waits(snapshot: Snapshot) -> None:
    assert not no_job_waits(snapshot, "cpu")
    assert idle_start(observed(snapshot)) is None


def test_of_several_partitions_one_that_is_clear_is_enough() -> None:
    """Slurm starts the job in whichever is free first."""
    for partitions in ("cpu,gpu", "gpu,cpu"):
        forecast = idle_start(observed(queue(("cpu", 0)), partition=partitions))
        assert forecast is not None
        assert "gpu" in forecast.basis
        assert no_job_waits(queue(("cpu", 0)), partitions)
        assert idle_start(observed(queue(("cpu", 0), ("gpu", 0)), partition=partitions)) is None
        assert not no_job_waits(queue(("cpu", 0), ("gpu", 0)), partitions)
    assert idle_start(observed(queue(idle=0), partition="cpu,gpu", nodes=5)) is None, (
        "no partition has enough idle nodes"
    )


def test_what_is_not_known_is_not_taken_for_idle() -> None:
    assert not no_job_waits(queue(), "other")
    assert not no_job_waits(replace(queue(), stale_since=NOW - 9), "cpu")
    assert not no_job_waits(Snapshot.unseen(NOW), "cpu")
    assert idle_start(observed(queue(idle=1), nodes=2)) is None
    assert idle_start(observed(queue(), gres_per_node=(("gpu:a100", 1),))) is None
    assert idle_start(observed(queue(), features=("fast",))) is None


def test_auto_goes_by_the_queue_and_not_by_the_waits_of_yesterday() -> None:
    usual = build_predictor("quantile")
    auto = Auto(Candidates(), usual, Weights())
    assert auto.wants.queue
    assert auto.predict(observed(queue())).at(0.9) == NOW
    assert auto.predict(observed(queue(("cpu", 0)))).at(0.5) == NOW + 10 * HOUR


def test_jobs_that_wait_still_count_where_few_waits_are_known() -> None:
    """Four jobs started immediately while nodes were idle; now the partition is full, and eleven have waited."""
    full = queue(*[("cpu", NOW - 40 * 60)] * 11, idle=0)
    few = replace(observed(full), waits=observed(full, waits=7).waits.last(4))
    auto = Auto(Candidates(), build_predictor("quantile"), Weights())
    found = auto.predict(few)
    assert isinstance(found, WaitForecast)
    assert found.at(0.5) - NOW >= 40 * 60
    assert found.at(0.9) - NOW == 2 * 40 * 60
    assert "11 of these jobs wait still" in found.basis


@pytest.mark.parametrize(
    ("jobs", "known"),
    [([("gpu", 0)], 4), ([("cpu", NEVER)], 4), ([("cpu", NOW - HOUR)], 50), ([("cpu", NOW - HOUR)], 0)],
    ids=["another partition", "depends", "enough is known", "nothing is known"],
)
def test_jobs_that_say_nothing_of_this_one(jobs: list[tuple[str, int]], known: int) -> None:
    seen = observed(queue(*jobs, idle=0), waits=7)
    seen = replace(seen, waits=seen.waits.last(known))
    assert with_waiting_jobs(seen) == (seen, 0)


def test_larger_jobs_than_this_one_say_nothing_of_it() -> None:
    snapshot = queue(("cpu", NOW - HOUR), ("cpu", NOW - HOUR), idle=0)
    pending = replace(snapshot.pending, nodes=np.array([1, 4]), limit=np.array([HOUR, HOUR]))
    seen = observed(replace(snapshot, pending=pending), waits=7)
    found, count = with_waiting_jobs(replace(seen, waits=seen.waits.last(4)))
    assert count == 1
    assert found.waits.wait.tolist() == [7, 7, 7, 7, 2 * HOUR]


@pytest.mark.parametrize("snapshot", [IDLE[0], BUSY[0]], ids=["idle", "busy"])
@pytest.mark.parametrize(("free", "first"), [(ABSENT, 0), (NOW, 0), (NOW + 2 * HOUR, NOW + 2 * HOUR)])
def test_no_start_is_predicted_within_a_reservation(snapshot: Snapshot, free: int, first: int) -> None:
    auto = Auto(Candidates(), build_predictor("quantile"), Weights())
    assert auto.wants.standing
    asked = replace(observed(snapshot, waits=60), standing=Standing(unreserved=free))
    forecast, plain = auto.predict(asked), auto.predict(observed(snapshot, waits=60))
    assert isinstance(forecast, WaitForecast)
    assert isinstance(plain, WaitForecast)
    assert forecast.starts == tuple(max(start, first) for start in plain.starts)

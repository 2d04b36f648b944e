"""Waits come from the successor's partition alone, whichever predictor uses them and wherever they are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fakes import FakeCluster

from mirage.control.observations import ObservationBuilder
from mirage.domain.decision import Standing, WaitForecast
from mirage.domain.job import Job, JobId, JobRequest, JobState
from mirage.domain.jobtable import JobLabels, JobTraits, Names
from mirage.domain.objective import Weights
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.predictors.registry import build_predictor
from mirage.replay.shadows import Judged, JudgedHandover, compared_by_partition
from mirage.store.opening import open_store
from mirage.store.waits import StartedJobs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.domain.decision import Observation
    from mirage.store.opening import Store

HOUR = 3_600
NOW = 1_700_000_000
V100 = JobRequest("s", "u", 2 * HOUR, 1, "v100")
PARTITIONS = (PartitionState("v100", 4, 0, 4, 0), PartitionState("npu", 4, 4, 0, 0))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """40 jobs of v100 waited an hour; since then 2,000 of npu waited four seconds."""
    store = open_store(f"sqlite:///{tmp_path}/mirage.db")
    for partition, count, wait, since in (("v100", 40, HOUR, 9_000), ("npu", 2_000, 4, 5_000)):
        ids = np.arange(count) + (10_000 if partition == "npu" else 0)
        start = NOW - since + np.arange(count)
        ones = np.ones(count, dtype=np.int64)
        store.waits.add(StartedJobs(ids, start - wait, start, ones, ones * 2 * HOUR, ones * 0, (partition,)))
    yield store
    store.close()


def seen(*partitions: PartitionState) -> Snapshot:
    return replace(Snapshot.unseen(NOW), stale_since=-1, partitions=partitions, partition_names=("v100", "npu"))


class Standings:
    """Knows the default partition and nothing else."""

    def __init__(self, partition: str) -> None:
        self._partition = partition

    def standing(self, request: JobRequest) -> Standing:
        del request
        return Standing()

    def default_partition(self) -> str:
        return self._partition


def observed(
    store: Store, name: str, request: JobRequest, default: str = "", predecessor: Job | None = None
) -> Observation:
    observer = ObservationBuilder(store.waits, FakeCluster(), standings=Standings(default))
    return observer.observe(seen(*PARTITIONS), predecessor, request, build_predictor(name).wants)


def forecast(store: Store, name: str, request: JobRequest, default: str = "") -> WaitForecast:
    answer = build_predictor(name).predict(observed(store, name, request, default))
    assert isinstance(answer, WaitForecast)
    return answer


@pytest.mark.parametrize("name", ["quantile", "quantile:0.9", "average", "average:30"])
def test_busy_partition_is_not_answered_by_idle_one(store: Store, name: str) -> None:
    assert forecast(store, name, V100).at(0.5) - NOW == HOUR
    assert forecast(store, name, replace(V100, partition="npu")).at(0.5) - NOW == 4


def test_forecast_says_which_waits_it_rests_on(store: Store) -> None:
    assert forecast(store, "quantile", V100).basis == "40 waits of partition v100"
    large = forecast(store, "quantile", replace(V100, nodes=4)).basis
    assert large == "40 waits of partition v100, any size"
    long = forecast(store, "quantile", replace(V100, limit=48 * HOUR)).basis
    assert long == "40 waits of partition v100, any size, any limit"


A100 = replace(V100, partition="mixed", gres_per_node=(("gpu:a100", 4),), qos="high", account="ml")


def started(first: int, count: int, wait: int, gres: str, qos: str, account: str = "ml") -> StartedJobs:
    """Jobs of a partition with several kinds of nodes, one started each second."""
    start = NOW - 9_000 + first + np.arange(count)
    ones = np.ones(count, dtype=np.int64)
    texts = (Names.encode([text] * count) for text in (account, qos, gres))
    columns = start, ones, ones * 2 * HOUR, ones * 0
    return StartedJobs(first + np.arange(count), start - wait, *columns, ("mixed",), JobTraits(*texts, ones * 4))


def test_idle_gres_and_qos_do_not_answer_for_contended_ones(store: Store) -> None:
    """However many of them start: far more than are looked through."""
    store.waits.add(started(100_000, 40, HOUR, "gpu:a100", "high"))
    store.waits.add(started(101_000, 3_000, 4, "gpu:v100", "high"))
    store.waits.add(started(105_000, 3_000, 9, "gpu:a100", "low"))
    found = forecast(store, "quantile", A100)
    assert (found.at(0.5) - NOW, found.basis) == (
        HOUR,
        "40 waits of partition mixed, GRES gpu:a100, QOS high, account ml",
    )
    assert forecast(store, "quantile", replace(A100, qos="low")).at(0.5) - NOW == 9
    assert forecast(store, "quantile", replace(A100, gres_per_node=(("gpu:v100", 4),))).at(0.5) - NOW == 4
    thin = forecast(store, "quantile", replace(A100, qos="new"))
    assert (thin.at(0.5) - NOW, thin.basis) == (
        9,
        "100 waits of partition mixed, GRES gpu:a100, account ml, any QOS",
    )


def test_unnamed_account_and_qos_are_the_predecessors(store: Store) -> None:
    store.waits.add(started(100_000, 40, HOUR, "gpu:a100", "high"))
    store.waits.add(started(101_000, 40, 4, "gpu:a100", "low", "bio"))
    unnamed = replace(A100, account="", qos="")
    job = Job(JobId(7), "s", "u", "mixed", 1, HOUR, JobState.RUNNING, 0, tag="mirage:s:1")
    one = np.ones(1, dtype=np.int64)
    columns = replace(JobColumns(*(one,) * 11), job_id=one * 7)
    labels = JobLabels.of_texts(one * 7, ["s"], ["ml"])
    snapshot = replace(
        seen(*PARTITIONS), running=columns, qos_names=("low", "high"), links={job.tag: job}, labels=labels
    )
    observer, predictor = ObservationBuilder(store.waits, FakeCluster()), build_predictor("quantile")
    bases = []
    # The last one has ended, and is in the queue no more; who is no link of ours is not looked up.
    for now, before in ((snapshot, job), (replace(snapshot, running=JobColumns.none()), job), (snapshot, None)):
        answer = predictor.predict(observer.observe(now, before, unnamed, predictor.wants))
        assert isinstance(answer, WaitForecast)
        bases.append(answer.basis)
    own = "40 waits of partition mixed, GRES gpu:a100, QOS high, account ml"
    assert bases == [own, own, "80 waits of partition mixed, GRES gpu:a100, any QOS, any account"]


def test_list_of_partitions_pools_its_members_only(store: Store) -> None:
    found = observed(store, "quantile", replace(V100, partition="v100,gone"))
    assert set(found.waits.wait.tolist()) == {HOUR}


def test_unnamed_partition_is_the_default_one(store: Store) -> None:
    unnamed = replace(V100, partition="")
    assert forecast(store, "quantile", unnamed, "v100").at(0.5) - NOW == HOUR
    assert forecast(store, "quantile", unnamed, "npu").at(0.5) - NOW == 4


def test_unnamed_partition_is_the_predecessors(store: Store) -> None:
    job = Job(JobId(1), "s", "u", "v100", 1, HOUR, JobState.RUNNING, 0)
    found = observed(store, "quantile", replace(V100, partition=""), "npu", job)
    assert (found.successor.partition, set(found.waits.wait.tolist())) == ("v100", {HOUR})


def test_unknown_partition_has_no_forecast(store: Store) -> None:
    for request in (replace(V100, partition=""), replace(V100, partition="gone")):
        with pytest.raises(ValueError, match="has started yet"):
            forecast(store, "quantile", request)


def test_predictors_are_compared_by_partition() -> None:
    handovers = [
        JudgedHandover(partition, 1, HOUR, (Judged("q", True, WaitForecast.point(NOW), NOW + late, None),))
        for partition, late in (("npu", 0), ("npu", 0), ("v100", HOUR), ("v100", 3 * HOUR))
    ]
    found = [
        (each.partition, each.forecasts, each.absolute_error)
        for each in compared_by_partition(handovers, Weights())
    ]
    assert found == [("npu", 2, 0), ("v100", 2, 2)]


def test_errors_are_measured_by_partition(store: Store) -> None:
    assert store.waits.partition_of(JobId(10_001)) == "npu"
    assert store.waits.partition_of(JobId(1)) == "v100"
    assert store.waits.partition_of(JobId(99_999)) == ""

"""Where nodes may be shared, a resumed cluster is as full as its queue shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_clusters import HOUR, T0, ask, cluster
from small_trace import trace

from mirage.backends.simulated import SimulatedCluster
from mirage.domain.job import ABSENT, NEVER
from mirage.domain.jobtable import JobLabels, gres_columns
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.simulator.cluster import NodeGroup
from mirage.simulator.resume import Futures, Resumption
from mirage.simulator.simulation import Simulation

NAMES = ("n0", "n1", "n2", "n3")
SHARED = cluster(4, cpus=64, exclusive=False)
WITH_GPUS = replace(SHARED, nodes=(NodeGroup(names=NAMES, cpus=64, memory_mb=1_000, gres=(("gpu:a100", 4),)),))


def full(labels: JobLabels | None) -> Snapshot:
    """A job of nine hours on each of four nodes, an hour old."""
    zero = np.zeros(4, dtype=np.int64)
    columns = JobColumns(
        job_id=np.arange(1, 5),
        user=zero,
        partition=zero,
        qos=zero - 1,
        nodes=zero + 1,
        limit=zero + 9 * HOUR,
        submit=zero + T0 - 2 * HOUR,
        eligible=zero + T0 - 2 * HOUR,
        start=zero + T0 - HOUR,
        priority=zero,
        series=zero,
    )
    state = PartitionState("main", 4, 0, 4, 0)
    seen = Snapshot(T0, JobColumns.none(), columns, (state,), ("ann",), ("main",), ())
    return replace(seen, labels=labels) if labels is not None else seen


def labels(cpus: int, memory_mb: int = ABSENT, gres: tuple[str, int] = ("", ABSENT)) -> JobLabels:
    column = np.ones(4, dtype=np.int64)
    kinds = gres_columns([gres] * 4) if gres[0] else None
    return JobLabels.of_texts(np.arange(4, 0, -1), [""] * 4, [""] * 4, kinds, (cpus * column, memory_mb * column))


def hours(config, snapshot: Snapshot, **request) -> int:
    """After which a job starts whose predecessors run as long as they may."""
    resumption = Resumption(config)
    nothing = resumption.coming(trace(0).take(np.empty(0, dtype=np.int64)))
    resumed = resumption.resume(snapshot, ask("bob", **request))
    unknown = np.full(len(resumed.rows), NEVER, dtype=np.int64)
    runs = np.full(len(resumed.rows), 9 * HOUR, dtype=np.int64)
    played = Futures(resumed, 0).starts(runs, unknown, nothing, np.array([T0]), T0 + 240 * HOUR)
    return round((int(played[0]) - T0) / HOUR)


@pytest.mark.parametrize(
    ("taken", "wanted", "expected"),
    [
        (labels(64), {}, 8),
        (None, {}, 8),
        (labels(ABSENT), {}, 8),
        (labels(256), {}, 8),
        (labels(63), {}, 0),
        (labels(33), {"cpus_per_node": 31}, 0),
        (labels(33), {"cpus_per_node": 32}, 8),
        (labels(33), {"exclusive": True}, 8),
    ],
)
def test_cpus_of_running_jobs_are_taken(taken: JobLabels | None, wanted: dict[str, object], expected: int) -> None:
    """Whole nodes where the nodes are unknown, and never more than a node has: such a job would be left out."""
    assert hours(SHARED, full(taken), **wanted) == expected


@pytest.mark.parametrize(
    ("taken", "wanted", "expected"),
    [
        (labels(1, 900), {"memory_mb_per_node": 100}, 0),
        (labels(1, 900), {"memory_mb_per_node": 101}, 8),
        (labels(1, 9_000), {"memory_mb_per_node": 1}, 8),
        (labels(1, gres=("gpu:a100", 3)), {"gres_per_node": (("gpu", 1),)}, 0),
        (labels(1, gres=("gpu:a100", 3)), {"gres_per_node": (("gpu", 2),)}, 8),
        (labels(1, gres=("gpu:h100", 4)), {"gres_per_node": (("gpu", 1),)}, 8),
        (labels(1, gres=("gpu:a100", 8)), {"gres_per_node": (("gpu", 1),)}, 8),
        (labels(1, gres=("tape", 4)), {"gres_per_node": (("gpu", 4),)}, 0),
    ],
)
def test_memory_and_generic_resources_are_taken(
    taken: JobLabels, wanted: dict[str, object], expected: int
) -> None:
    assert hours(WITH_GPUS, full(taken), **wanted) == expected


def test_simulated_queue_shows_what_jobs_take() -> None:
    sim = Simulation(SHARED, start=T0)
    for cpus in (64, 10):
        sim.submit(ask(nodes=2, cpus_per_node=cpus), HOUR)
    sim.submit(ask(exclusive=True), HOUR)
    sim.run_until(T0 + 60)
    seen = sim.labels()
    rows = seen.rows_of(np.array([1, 2, 3, 77]))
    assert rows[3] == -1
    assert seen.cpus[rows[:3]].tolist() == [128, 20, ABSENT]
    shown = SimulatedCluster(sim).snapshot().labels
    assert shown.cpus[shown.rows_of(np.array([1, 2]))].tolist() == [128, 20]
    assert hours(SHARED, SimulatedCluster(sim).snapshot(), cpus_per_node=54) == 0

"""Observations drawn at random: a partition with a day of history, two links, waits, a plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mirage.domain.decision import NO_LIMIT, Observation, PlannedStart, PlanStatus, RecentWaits, Standing
from mirage.domain.job import Job, JobId, JobRequest, JobState
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.features.summary import QueueWindows

HOUR = 3_600
NOW = 1_700_000_400
TOTAL = 76


def drawn_jobs(rng: np.random.Generator, count: int, now: int, *, running: bool) -> JobColumns:
    submit = now - rng.integers(0, 40 * HOUR, count)
    start = np.minimum(now, submit + rng.integers(0, 20 * HOUR, count)) if running else np.full(count, -1)
    return JobColumns(
        job_id=np.arange(count),
        user=rng.integers(0, 9, count),
        partition=np.zeros(count, dtype=np.int64),
        qos=np.zeros(count, dtype=np.int64),
        nodes=rng.integers(1, 17, count),
        limit=rng.choice([1, 4, 24, 48], count) * HOUR,
        submit=submit,
        eligible=np.where(rng.random(count) < 0.8, submit, 1 << 61),
        start=start,
        priority=rng.integers(0, 100_000, count),
        series=np.zeros(count, dtype=np.int64),
    )


def drawn_snapshot(rng: np.random.Generator, now: int = NOW) -> Snapshot:
    idle, down = int(rng.integers(0, 9)), int(rng.integers(0, 4))
    return Snapshot(
        now,
        drawn_jobs(rng, int(rng.integers(0, 40)), now, running=False),
        drawn_jobs(rng, int(rng.integers(0, 30)), now, running=True),
        (PartitionState("gpu", TOTAL, idle, TOTAL - idle - down, down),),
        tuple(f"u{k}" for k in range(9)),
        ("gpu",),
        ("normal",),
    )


def drawn_observation(seed: int, rows: int = 144) -> Observation:
    """``rows`` snapshots ten minutes apart, the last of them now."""
    rng = np.random.default_rng(seed)
    windows, snapshot = QueueWindows(), drawn_snapshot(rng)
    for k in range(1 - rows, 0):
        windows.add(drawn_snapshot(rng, NOW + 600 * k))
    windows.add(snapshot)
    start = NOW - int(rng.integers(0, 40 * HOUR))
    nodes = int(rng.choice([1, 8]))
    waits = RecentWaits(
        start=np.sort(NOW - rng.integers(0, 10**6, 1_000)),
        wait=rng.integers(0, 30 * HOUR, 1_000),
        nodes=rng.choice([1, 2, 8, 32], 1_000),
        limit=rng.choice([1, 24, 48], 1_000) * HOUR,
    )
    return Observation(
        time=NOW,
        snapshot=snapshot,
        predecessor=Job(
            JobId(7), "s", "u", "gpu", nodes, 48 * HOUR, JobState.RUNNING, start - 5_000, start, start + 48 * HOUR
        ),
        successor=JobRequest("s", "u", 48 * HOUR, nodes, "gpu"),
        waits=waits,
        planned_start=PlannedStart.known(NOW + int(rng.integers(-60, 50 * HOUR))),
        window=windows.of("gpu"),
        standing=Standing(0.25, 3, 2),
    )


def emptied(observation: Observation) -> Observation:
    """Nothing pends, runs or is known beyond what a schema must have."""
    none = JobColumns.none()
    snapshot = replace(observation.snapshot, pending=none, running=none)
    windows = QueueWindows()
    windows.add(snapshot)
    return Observation(
        NOW,
        snapshot,
        None,
        observation.successor,
        RecentWaits.none(),
        PlannedStart(PlanStatus.BEYOND_WINDOW),
        windows.of("gpu"),
        standing=Standing(jobs_left=NO_LIMIT, reserved_nodes=0),
    )

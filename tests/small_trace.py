"""A small contended cluster and a seeded trace for it."""

from __future__ import annotations

import numpy as np

from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.replay.plan import ReplayPlan
from mirage.simulator.cluster import ClusterConfig, NodeGroup, Partition, PriorityWeights

HOUR = 3_600
DAY = 24 * HOUR
NODES = tuple(f"n{i}" for i in range(6))

CLUSTER = ClusterConfig(
    "small",
    (NodeGroup(NODES, cpus=4),),
    (Partition("batch", NODES, max_time=2 * DAY, exclusive=True, default=True),),
    priority=PriorityWeights(age=1_000),
)


def trace(seed: int = 0, days: int = 20, load: float = 0.9) -> JobTable:
    """Jobs of 1 to 4 nodes and up to a day, about ``load`` of the cluster."""
    rng = np.random.default_rng(seed)
    limit = rng.choice([2, 6, 12, 24], size=4_000) * HOUR
    runtime = np.maximum(60, (limit * rng.beta(1.2, 1.0, size=4_000)).astype(np.int64))
    nodes = rng.choice([1, 1, 2, 4], size=4_000).astype(np.int32)
    gap = float((runtime * nodes).mean()) / (load * len(NODES))
    submit = np.cumsum(rng.exponential(gap, size=4_000)).astype(np.int64) + 1_000_000
    count = int(np.searchsorted(submit, 1_000_000 + days * DAY))
    rows = slice(0, count)
    return job_table(
        count,
        user=Names.encode([f"u{k}" for k in rng.integers(0, 20, size=4_000)[rows]]),
        submit=submit[rows],
        start=submit[rows],
        end=(submit + runtime)[rows],
        limit=limit[rows],
        nodes=nodes[rows],
        state=np.full(count, 3, dtype=np.int8),
        source="small",
    )


def plan(*policies: str, episodes: int = 6, **changes) -> ReplayPlan:
    """Episodes of a two-node service from the fifth day, nine hours apart."""
    start = 1_000_000 + 5 * DAY
    settings = {
        "nodes": 2,
        "limit": DAY,
        "start": start,
        "end": start + (episodes - 1) * 9 * HOUR,
        "every": 9 * HOUR,
    }
    return ReplayPlan(policies=policies, **(settings | changes))

"""Small tables: made up at random, or played on the small cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from small_trace import CLUSTER, DAY, HOUR, trace

from mirage.features.schema import schema
from mirage.features.table import Origin, Table
from mirage.training.tables import TablePlan, build_table

if TYPE_CHECKING:
    from pathlib import Path

FIRST = 1_000_000 + 5 * DAY
PLAN = TablePlan(FIRST, FIRST + 81 * HOUR, nodes=(1, 2), limit=12 * HOUR, every=9 * HOUR, grid=2 * HOUR)
"""Ten starts, two sizes, seven points each: two chunks."""


def played(folder: Path, schema_name: str = "v2", workers: int = 1, plan: TablePlan = PLAN) -> Table:
    return build_table(trace(), CLUSTER, plan, schema(schema_name), folder, workers=workers)


def made_up(seed: int, episodes: int = 5, points: int = 7) -> Table:
    """Waits at random; features count the points, so that every observation shows where it is from."""
    rng = np.random.default_rng(seed)
    chosen = schema("v2")
    first = np.arange(episodes) * 9 * HOUR + FIRST
    submit = first[:, None] + np.arange(points) * HOUR
    features = np.zeros((episodes, points, chosen.size), dtype=np.float32)
    features[..., 0] = np.arange(episodes * points).reshape(episodes, points)
    return Table(
        schema=chosen,
        origin=Origin("small", "0", "made up", "0", FIRST, FIRST, FIRST, 9 * HOUR, HOUR),
        features=features,
        submit=submit,
        start=submit + rng.integers(0, 9 * HOUR, submit.shape),
        end=submit[:, -1],
        episode_start=first - 60,
        nodes=np.ones(episodes, dtype=np.int64),
        limit=np.full(episodes, (points - 1) * HOUR),
    )

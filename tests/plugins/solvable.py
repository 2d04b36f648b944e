"""Handovers with a known best policy: a feature is the wait in hours; submit when it reaches the time left."""

from __future__ import annotations

import numpy as np

from mirage.domain.decision import Wants
from mirage.features.table import FeatureSchema, Origin, Table

POINTS, GRID, STEPS = 25, 1_800, 3

SCHEMA = FeatureSchema("solvable", 1, ("load", "noise"), STEPS, ("remaining", "flat"), Wants())


def solvable(seed: int, episodes: int = 200) -> Table:
    """Twelve hours each; the wait is up to ten hours and stands, almost, in every step of the sequence."""
    rng = np.random.default_rng(seed)
    load = rng.uniform(0, 10, episodes)
    submit = np.arange(episodes)[:, None] * 86_400 + np.arange(POINTS) * GRID
    end = submit[:, -1]
    steps = np.stack(
        [
            load[:, None, None] + rng.normal(0, 0.1, (episodes, POINTS, STEPS)),
            rng.normal(size=(episodes, POINTS, STEPS)),
        ],
        axis=-1,
    ).reshape(episodes, POINTS, -1)
    statics = np.stack([(end[:, None] - submit) / 3_600, np.ones_like(submit, dtype=float)], axis=-1)
    return Table(
        schema=SCHEMA,
        origin=Origin("made up", "f" * 64, "made up", "0" * 64, int(submit[-1, -1]), 0, 0, 86_400, GRID),
        features=np.concatenate([steps, statics], axis=-1).astype(np.float32),
        submit=submit,
        start=submit + (load[:, None] * 3_600).astype(np.int64),
        end=end,
        episode_start=submit[:, 0],
        nodes=np.ones(episodes, dtype=np.int64),
        limit=np.full(episodes, 43_200),
    )

"""Handovers whose wait is a known function of what is to be seen, with known noise."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from mirage.features.schema import encode, schema
from mirage.features.table import Origin, Table
from mirage.plugin import Learnt, Tree, WaitQuantiles, sample_observation, trees_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.decision import Observation

HOUR = 3_600
POINTS = 25
SPREAD = 0.25
"""Standard deviation of the wait's logarithm, given what is to be seen."""
TOLD = "ahead_hours"
"""The feature that determines the wait."""


def true_quantile(told: NDArray[np.float32], level: float) -> NDArray[np.float64]:
    """Hours: the wait is (1 + 8 x feature) exp(SPREAD z), z standard normal."""
    return np.asarray((1 + 8 * told) * np.exp(SPREAD * NormalDist().inv_cdf(level)))


def learnable(seed: int, episodes: int = 150) -> Table:
    """Handovers of twelve hours, half an hour between submit times; all features but a few are noise."""
    rng = np.random.default_rng(seed)
    chosen = schema("v2")
    first = 1_000_000 + np.arange(episodes) * 6 * HOUR
    submit = first[:, None] + np.arange(POINTS) * HOUR // 2
    features = rng.random((episodes, POINTS, chosen.size)).astype(np.float32)
    names = chosen.names
    features[..., names.index("successor_share")] = 1 / 76
    features[..., names.index("successor_nodes")] = np.log1p(1)
    features[..., names.index("successor_limit")] = np.log1p(48)
    told = features[..., names.index(TOLD)]
    wait = true_quantile(told, 0.5) * np.exp(SPREAD * rng.standard_normal(told.shape))
    return Table(
        schema=chosen,
        origin=Origin("made up", "f" * 64, "made up", "0" * 64, int(submit[-1, -1]), 0, 0, 6 * HOUR, HOUR // 2),
        features=features,
        submit=submit,
        start=submit + (wait * HOUR).astype(np.int64),
        end=submit[:, -1],
        episode_start=first - 60,
        nodes=np.ones(episodes, dtype=np.int64),
        limit=np.full(episodes, 12 * HOUR),
    )


def with_vectors(table: Table, observation: Observation) -> Table:
    """The same handovers with features around those of an observation, which is then a usual one."""
    rng = np.random.default_rng(0)
    usual = encode(table.schema, observation)
    near = usual * (1 + 0.2 * rng.standard_normal(table.features.shape)).astype(np.float32)
    # The nodes and the limit asked for are the same in all.
    place = table.schema.names.index("successor_share")
    kept = [table.schema.names.index(name) for name in ("successor_nodes", "successor_limit")]
    near[..., [place, *kept]] = usual[[place, *kept]]
    return replace(table, features=near.astype(np.float32))


USUAL = sample_observation()

LEVELS = (0.1, 0.5, 0.9)


def constant_graph(answer: list[float]) -> bytes:
    """Answers the same to everything."""
    leaf = np.array([-1])
    tree = Tree(leaf, np.zeros(1, np.float32), leaf, leaf, np.zeros((1, len(answer)), np.float32))
    return trees_graph([tree], schema("v2").size, np.array(answer, dtype=np.float32), compare="<")


def learnt() -> Learnt:
    """A model that predicts one, two and four hours whatever it sees."""
    model = constant_graph([1.0, 2.0, 4.0])
    return Learnt("made-up", "1.0", model, WaitQuantiles(LEVELS), (3,), {"absolute_x": 1.5})

"""A model of each plugin that learns, for partition ``cpu`` of a testbed: from a drawn trace, in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.features.schema import schema
from mirage.training.dataset_split import DatasetSplit
from mirage.training.tables import TablePlan, build_table

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.plugin import Trainer
    from mirage.simulator.cluster import ClusterConfig

PARTITION = "cpu"
LIMIT = 30 * 60
"""Seconds: the service's links."""
HOUR = 3_600
DAY = 24 * HOUR
DAYS = 7
LOAD = 0.8
"""Of the partition's CPUs. The load arrives in batches: there are empty hours, and hours with long queues."""
CPUS = 64
"""Of a node."""


def drawn_trace(nodes: int, start: int, seed: int, days: int = DAYS) -> JobTable:
    """Jobs of one node, in part or whole, for this number of days from ``start``."""
    rng = np.random.default_rng(seed)
    batches = rng.integers(1, 9, size=4 * days * nodes * 24)
    count = int(batches.sum())
    limit = rng.choice([30, 45, 60, 90], size=count) * 60
    runtime = (limit * rng.uniform(0.3, 1.0, size=count)).astype(np.int64)
    cpus = rng.choice([1, 8, CPUS], size=count).astype(np.int32)
    gap = float((runtime * cpus).mean() * batches.mean()) / (LOAD * nodes * CPUS)
    submit = np.repeat(start + np.cumsum(rng.exponential(gap, size=len(batches))), batches).astype(np.int64)
    drawn = job_table(
        count,
        user=Names.encode([f"u{k}" for k in rng.integers(0, 5, size=count)]),
        partition=Names.encode([PARTITION] * count),
        submit=submit,
        start=submit,
        end=submit + runtime,
        limit=limit,
        nodes=np.ones(count, dtype=np.int32),
        cpus=cpus,
        state=np.full(count, 3, dtype=np.int8),
        source="drawn",
    )
    return drawn.take(drawn.submit < start + days * DAY)


def train_models(cluster: ClusterConfig, start: int, folder: Path) -> dict[str, Path]:
    """The four, by the names of their predictors; ``start``: when the trace begins."""
    nodes = next(len(each.nodes) for each in cluster.partitions if each.name == PARTITION)
    trace = drawn_trace(nodes, start, 0)
    first, end = start + DAY, start + (DAYS - 1) * DAY
    plan = TablePlan(first, end, (1,), LIMIT, 90 * 60, 600, PARTITION)
    table = build_table(trace, cluster, plan, schema("v2"), folder / "table")
    teaching, choosing = DatasetSplit(first, first + 3 * (end - first) // 4, end).split(table)
    return {
        name: trainer.train(teaching, choosing, 0, folder / name) for name, trainer in small_trainers().items()
    }


def small_trainers() -> dict[str, Trainer]:
    """The plugins' trainers, with short training."""
    from mirage_dqn import learning as dqn
    from mirage_encoders.networks import EncoderOptions
    from mirage_encoders.trainer import ScoreTrainer, TrainingLength
    from mirage_policy_gradient import learning as policy_gradient
    from mirage_random_forest.training import ForestSettings, ForestTrainer
    from mirage_xgboost.training import BoostingSettings as BoostedSettings
    from mirage_xgboost.training import XGBoostTrainer

    from mirage.plugin import Weights

    encoder = EncoderOptions("mlp", 32)
    deep = dqn.DqnOptions(encoder, rate=2e-3, batch=64)
    policy = policy_gradient.PolicyOptions("reinforce", encoder, rate=3e-3)
    return {
        "random-forest": ForestTrainer(ForestSettings(trees=20, leaves=(10, 40), rows=400, columns=0.4)),
        "xgboost": XGBoostTrainer(BoostedSettings(rounds=20, thin=1, least_in_leaf=10)),
        "dqn": ScoreTrainer(
            "dqn", "0", lambda *given: dqn.learn(*given, deep), TrainingLength(1, 6_400), Weights(), members=1
        ),
        "policy-gradient": ScoreTrainer(
            "policy-gradient",
            "0",
            lambda *given: policy_gradient.learn(*given, policy),
            TrainingLength(1, 40_000),
            Weights(),
            members=1,
        ),
    }

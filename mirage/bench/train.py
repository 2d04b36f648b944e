"""How fast the tables' environments are: steps per second of one core, by the number of concurrent handovers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from mirage.bench import BenchSection
from mirage.features.schema import schema
from mirage.features.table import Origin, Table
from mirage.training.environment import SUBMIT, HandoverEnv, HandoverVectorEnv

if TYPE_CHECKING:
    from collections.abc import Callable

BESIDE = (64, 256, 1024)
EPISODES, POINTS = 660, 97
"""A month at a start every four hours of two sizes, each tried every half hour of 48 hours; about that."""
STEPS = 200_000
CHANCE = 0.02
"""Of submitting at a point: handovers last about as long as those of a policy that is of use."""


def measure_train(say: Callable[[str], None]) -> tuple[BenchSection, ...]:
    """One section. ``say`` receives the title of the measurement."""
    say("environments on a counterfactual table")
    table = _table()
    rows = [(f"{count:,} concurrent handovers", _speed(_vector_steps(table, count))) for count in BESIDE]
    rows.append(("one at a time (Gymnasium's plain interface)", _speed(_single_steps(table))))
    title = f"steps of the environment, {table.schema.size} features, {EPISODES} handovers of {POINTS} points"
    return (BenchSection(f"{title} (one core)", tuple(rows)),)


def _table() -> Table:
    """Made up: a step costs the same whatever the numbers are."""
    random = np.random.default_rng(0)
    chosen = schema("v2")
    submit = np.arange(POINTS) * 1_800 + np.arange(EPISODES)[:, None] * 14_400
    start = submit + random.integers(0, 172_800, submit.shape)
    return Table(
        schema=chosen,
        origin=Origin("made up", "", "made up", "", 0, 0, 0, 14_400, 1_800),
        features=random.random((EPISODES, POINTS, chosen.size), dtype=np.float32),
        submit=submit,
        start=start,
        end=submit[:, -1],
        episode_start=submit[:, 0],
        nodes=np.ones(EPISODES, dtype=np.int64),
        limit=np.full(EPISODES, 172_800),
    )


def _vector_steps(table: Table, count: int) -> Callable[[], int]:
    envs = HandoverVectorEnv(table, count)
    envs.reset(seed=0)
    rounds = STEPS // count
    actions = (np.random.default_rng(1).random((rounds, count)) < CHANCE).astype(np.int64)

    def work() -> int:
        for chosen in actions:
            envs.step(chosen)
        return rounds * count

    return work


def _single_steps(table: Table) -> Callable[[], int]:
    env = HandoverEnv(table)
    env.reset(seed=0)
    submits = np.random.default_rng(1).random(STEPS // 10) < CHANCE

    def work() -> int:
        for submit in submits:
            if env.step(SUBMIT if submit else 0)[2]:
                env.reset()
        return len(submits)

    return work


def _speed(work: Callable[[], int]) -> str:
    """Of the fastest of five, by CPU time of this process."""
    speeds = []
    for _ in range(5):
        begun = time.process_time()
        steps = work()
        speeds.append(steps / (time.process_time() - begun))
    return f"{max(speeds):,.0f} steps/s"

"""Sets of tasks: reproducible, as the mix says, and nothing that cannot be drawn."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.allocation.ddl.generator import Arrival, ModelClass, TaskMix, draw_tasks
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from mirage.domain.pool import TaskTable

CLASSES = (ModelClass("big", 1.0, (4, 8), (3.0, 1.0)), ModelClass("small", 3.0, (1,), (1.0,)))


def _draw(seed: int = 0, devices: int = 32, **changes: object) -> TaskTable:
    return draw_tasks(TaskMix(CLASSES, **changes), np.random.default_rng(seed), devices)  # type: ignore[arg-type]


def test_one_seed_is_one_set() -> None:
    one, again, other = _draw(seed=3, slack=1.0), _draw(seed=3, slack=1.0), _draw(seed=4, slack=1.0)
    for column in fields(one):
        first, second = getattr(one, column.name), getattr(again, column.name)
        if isinstance(first, np.ndarray):
            assert np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    assert not np.array_equal(one.work, other.work)


def test_models_and_sizes_come_as_often_as_they_weigh() -> None:
    tasks = _draw(count=20000)
    small = np.array(tasks.model.decode()) == "small"
    assert small.mean() == pytest.approx(0.75, abs=0.01)
    assert (tasks.devices[small] == 1).all()
    assert (tasks.devices[~small] == 4).mean() == pytest.approx(0.75, abs=0.02)


def test_run_times_are_log_normal_within_their_bounds() -> None:
    tasks = _draw(count=20000, median_s=1000.0, sigma=1.0, shortest_s=1.0, longest_s=1e9)
    logs = np.log(tasks.work / 1000.0)
    assert logs.mean() == pytest.approx(0.0, abs=0.03)
    assert logs.std() == pytest.approx(1.0, abs=0.03)
    cut = _draw(count=2000, median_s=1000.0, sigma=3.0, shortest_s=500.0, longest_s=2000.0)
    assert (cut.work.min(), cut.work.max()) == (500.0, 2000.0)


@pytest.mark.parametrize("arrival", [Arrival.POISSON, Arrival.BURSTS])
def test_so_much_work_arrives_as_the_load_says(arrival: Arrival) -> None:
    tasks = _draw(count=40000, arrival=arrival, load=0.8)
    offered = float((tasks.work * tasks.devices).sum()) / (32 * tasks.submit[-1])
    assert offered == pytest.approx(0.8, rel=0.06)


def test_bursts_are_as_large_as_said() -> None:
    tasks = _draw(count=40000, arrival=Arrival.BURSTS, burst=5.0)
    assert 40000 / len(np.unique(tasks.submit)) == pytest.approx(5.0, rel=0.05)


def test_beliefs_are_the_truth_unless_said_otherwise() -> None:
    assert np.array_equal((known := _draw()).work, known.expected)
    guessed = _draw(count=20000, belief_sigma=0.5)
    assert np.log(guessed.expected / guessed.work).std() == pytest.approx(0.5, abs=0.02)


def test_what_does_not_fit_into_the_pool_is_not_drawn() -> None:
    assert _draw(count=500, devices=4).devices.max() == 4
    with pytest.raises(ConfigError, match="none of its tasks fits on 2 devices"):
        draw_tasks(TaskMix(CLASSES[:1]), np.random.default_rng(0), 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 0},
        {"median_s": 0.0},
        {"sigma": -1.0},
        {"load": 0.0},
        {"burst": 0.5},
        {"tenants": 0},
        {"slack": -1.0},
        {"longest_s": float("inf")},
        {"shortest_s": 1e9},
        {"classes": ()},
    ],
)
def test_a_mix_that_cannot_be_drawn_from_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"mix of tasks: {next(iter(changes))}"):
        TaskMix(**{"classes": CLASSES, **changes})  # type: ignore[arg-type]


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 60),
    arrival=st.sampled_from(Arrival),
    slack=st.none() | st.floats(0, 5),
)
def test_every_set_can_be_run(seed: int, count: int, arrival: Arrival, slack: float | None) -> None:
    tasks = _draw(seed, count=count, arrival=arrival, slack=slack)
    assert len(tasks) == count
    assert tasks.submit[0] == 0
    assert (np.diff(tasks.submit) >= 0).all()
    assert (tasks.work > 0).all()
    assert (tasks.devices >= 1).all()
    assert np.isnan(tasks.deadline).all() if slack is None else (tasks.deadline >= tasks.submit + tasks.work).all()

"""The built-in predictors against plain statements of what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.decision import Observation, PlannedStart, PlanStatus, RecentWaits, WaitForecast
from mirage.domain.errors import ConfigError, PluginNotFound
from mirage.domain.job import ABSENT, JobRequest
from mirage.domain.snapshot import Snapshot
from mirage.features.waitclass import ENOUGH, LIMIT_BOUNDS, NODE_BOUNDS, USED
from mirage.predictors.registry import build_predictor, predictor_names

if TYPE_CHECKING:
    from mirage.ports import Predictor

HOUR = 3_600
NOW = 1_000_000


def observed(jobs: list[tuple[int, int, int]] = [], nodes: int = 1, limit: int = 48 * HOUR, plan: int = ABSENT):  # noqa: B006
    """``jobs``: (wait, nodes, limit), oldest first."""
    wait, size, walltime = np.array(jobs, dtype=np.int64).reshape(-1, 3).T
    waits = RecentWaits(np.arange(len(wait)), wait, size, walltime)
    planned = PlannedStart(PlanStatus.BEYOND_WINDOW) if plan == ABSENT else PlannedStart.known(plan)
    return Observation(NOW, Snapshot.unseen(NOW), None, JobRequest("s", "u", limit, nodes), waits, planned)


def wait_of(text: str, observation: Observation) -> float:
    predictor: Predictor = build_predictor(text)
    prediction = predictor.predict(observation)
    assert isinstance(prediction, WaitForecast)
    return prediction.at(0.5) - NOW


def test_reactive_expects_no_wait_and_fixed_its_lead() -> None:
    assert wait_of("reactive", observed()) == 0
    assert wait_of("fixed:6h", observed()) == 6 * HOUR
    assert wait_of("fixed:90m", observed()) == 1.5 * HOUR


jobs = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 300), st.sampled_from([600, 4 * HOUR, 24 * HOUR, 48 * HOUR])),
    min_size=1,
    max_size=200,
)


@given(jobs)
def test_average_is_the_mean_of_what_it_asked_for(some: list[tuple[int, int, int]]) -> None:
    assert wait_of("average", observed(some)) == pytest.approx(np.mean([wait for wait, _, _ in some]))
    assert build_predictor("average").wants.waits == 100
    assert build_predictor("average:30").wants.waits == 30


def slow_class(value: int, bounds: tuple[int, ...]) -> int:
    return sum(value > bound for bound in bounds)


@given(jobs, st.integers(1, 300), st.sampled_from([HOUR, 12 * HOUR, 48 * HOUR]), st.floats(0, 1))
def test_quantile_against_a_plain_search(some, nodes: int, limit: int, level: float) -> None:
    def alike(bound_nodes: bool, bound_limit: bool) -> list[int]:
        return [
            w
            for w, n, t in some
            if (not bound_nodes or slow_class(n, NODE_BOUNDS) == slow_class(nodes, NODE_BOUNDS))
            and (not bound_limit or slow_class(t, LIMIT_BOUNDS) == slow_class(limit, LIMIT_BOUNDS))
        ]

    chosen = next(
        (waits for waits in (alike(True, True), alike(False, True)) if len(waits) >= ENOUGH), alike(False, False)
    )
    seen = observed(some, nodes, limit)
    expected = np.quantile(chosen[-USED:], level)
    assert wait_of(f"quantile:{level}", seen) == pytest.approx(expected, abs=1e-6)
    every = build_predictor("quantile").predict(seen)
    assert isinstance(every, WaitForecast)
    assert every.starts == pytest.approx(NOW + np.quantile(chosen[-USED:], every.levels), abs=1e-6)


def test_slurm_repeats_the_plan_but_not_the_past() -> None:
    assert wait_of("slurm", observed(plan=NOW + 5 * HOUR)) == 5 * HOUR
    assert wait_of("slurm", observed(plan=NOW - 5)) == 0
    with pytest.raises(ValueError, match="backfill window"):
        build_predictor("slurm").predict(observed())


@pytest.mark.parametrize("name", ["average", "quantile"])
def test_without_any_job_they_say_so(name: str) -> None:
    with pytest.raises(ValueError, match="no job has started"):
        build_predictor(name).predict(observed())


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(PluginNotFound, match="reactive"):
        build_predictor("crystal-ball")


@pytest.mark.parametrize(
    "text",
    [
        "fixed",
        "fixed:soon",
        "fixed:-6h",
        "average:0",
        "average:x",
        "quantile:2",
        "quantile:nan",
        "reactive:1",
        "slurm:1",
    ],
)
def test_a_wrong_parameter_names_the_predictor(text: str) -> None:
    with pytest.raises(ConfigError, match=text.partition(":")[0]):
        build_predictor(text)


@given(st.text(max_size=30))
def test_any_text_is_a_predictor_or_a_clear_error(text: str) -> None:
    try:
        predictor = build_predictor(text)
    except (PluginNotFound, ConfigError):
        return
    assert predictor.name == text.strip() or ":" in text


@pytest.mark.parametrize(
    "text", ["reactive", "fixed:6h", "average", "average:30", "quantile", "quantile:0.9", "slurm"]
)
def test_names_are_as_the_user_gave_them(text: str) -> None:
    assert text.partition(":")[0] in predictor_names()
    assert build_predictor(text).name == text


def test_extra_factories_serve_one_call() -> None:
    assert build_predictor("mine:3", {"mine": lambda p: build_predictor(f"fixed:{p}h")}).name == "fixed:3h"
    with pytest.raises(PluginNotFound):
        build_predictor("mine:3")

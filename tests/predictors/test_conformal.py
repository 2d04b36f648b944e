"""Calibration and weights by experience: the bounds that theory promises, on any sequence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.predictors.ensemble import AdaHedge
from mirage.predictors.past_predictions import STEP, QuantileTracker, censored_quantiles, scaled, unscaled

LEVELS = (0.1, 0.5, 0.9)


def shares_covered(scores: np.ndarray) -> np.ndarray:
    """Coverage by level, over a stream of single scores."""
    tracker, covered = QuantileTracker(LEVELS), np.zeros(len(LEVELS))
    for score in scores:
        hit = (score <= tracker.shift).astype(float)
        covered += hit
        tracker.learn(hit)
    return covered / len(scores)


def streams() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    calm = rng.normal(0.0, 0.4, 2_000)
    return {
        "as foreseen": calm,
        "biased": calm + 1.5,
        "changing": calm + np.repeat([0.0, 2.0, -2.0, 1.0], 500),
        "drifting": calm + np.linspace(-2.0, 2.0, 2_000),
        "spiteful": 3.0 * np.where(np.arange(2_000) // 7 % 2, 1.0, -1.0),
    }


@pytest.mark.parametrize("kind", streams())
def test_each_level_covers_its_share_within_the_bound(kind: str) -> None:
    scores = streams()[kind]
    bound = (np.abs(scores).max() + STEP) / (STEP * len(scores))
    assert np.abs(shares_covered(scores) - LEVELS).max() <= bound


def test_a_change_of_regime_costs_rounds_and_nothing_else() -> None:
    scores = streams()["changing"]
    tracker, hits = QuantileTracker(LEVELS), []
    for score in scores:
        hits.append(score <= tracker.shift)
        tracker.learn(hits[-1].astype(float))
    late = np.array(hits).reshape(4, 500, 3)[:, 200:].mean(axis=1)
    assert np.abs(late - LEVELS).max() < 0.08
    fixed = scores[:500, None] <= np.quantile(scores[:500], LEVELS)
    assert np.abs(fixed.mean(axis=0) - LEVELS).max() < 0.01
    assert np.abs((scores[500:1_000, None] <= np.quantile(scores[:500], LEVELS)).mean(axis=0) - LEVELS).max() > 0.5


def test_what_cannot_be_told_moves_nothing() -> None:
    tracker = QuantileTracker(LEVELS)
    tracker.learn(np.array([1.0, np.nan, 0.0]))
    assert tracker.shift == pytest.approx([STEP * -0.9, 0.0, STEP * 0.9])


@given(st.floats(0, 1e7))
def test_the_scale_goes_back_and_forth(wait: float) -> None:
    assert unscaled(scaled(np.array([wait])))[0] == pytest.approx(wait, abs=1e-6)
    assert unscaled(np.array([-1.0]))[0] == 0


values = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@given(values)
def test_without_censoring_they_are_the_empirical_quantiles(some: list[int]) -> None:
    found = censored_quantiles(np.array(some, dtype=float), np.zeros(len(some), dtype=bool), LEVELS)
    assert found.tolist() == np.quantile(some, LEVELS, method="inverted_cdf").tolist()


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=30))
def test_with_censoring_against_the_product_written_out(some: list[tuple[int, bool]]) -> None:
    def beyond(value: int) -> float:
        share = 1.0
        for time in range(value + 1):
            deaths = sum(v == time and not open_ for v, open_ in some)
            at_risk = sum(v >= time for v, _ in some)
            share *= 1 - deaths / at_risk if at_risk else 1
        return share

    found = censored_quantiles(np.array([v for v, _ in some], float), np.array([o for _, o in some]), LEVELS)
    for level, value in zip(LEVELS, found.tolist(), strict=True):
        reached = [v for v in range(10) if beyond(v) <= 1 - level + 1e-9]
        assert value == reached[0] if reached else math.isnan(value)


@given(
    st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 200), st.sampled_from(["drawn", "turned", "spiteful"])
)
def test_regret_is_within_the_bound(seed: int, advisers: int, rounds: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    losses = rng.random((rounds, advisers)) * rng.exponential(5.0)
    if kind == "turned":
        losses[rounds // 2 :, 0] += 3.0
    weighing, incurred = AdaHedge(advisers), 0.0
    for at in range(rounds):
        weights = weighing.weights
        assert weights.sum() == pytest.approx(1)
        if kind == "spiteful":  # the member with the largest weight is wrong
            losses[at] = 0.0
            losses[at, int(weights.argmax())] = 1.0
        incurred += float(weights @ losses[at])
        weighing.learn(losses[at])
    spread = losses.max(axis=1) - losses.min(axis=1)
    log = math.log(advisers)
    bound = math.sqrt(float((spread**2).sum()) * log) + float(spread.max()) * (4 / 3 * log + 2)
    assert incurred - float(losses.sum(axis=0).min()) <= bound + 1e-9


def learnt(losses: np.ndarray, memory: float = 1.0) -> list[float]:
    weighing = AdaHedge(losses.shape[1], memory)
    for round_ in losses:
        weighing.learn(round_)
    return weighing.weights.tolist()


def test_who_foresees_better_is_trusted_and_scale_does_not_matter() -> None:
    losses = np.array([[1.0, 2.0]] * 5 + [[2.0, 1.0]] + [[1.0, 2.0]] * 30)
    assert learnt(losses)[0] > 0.9
    assert learnt(1_000 * losses) == pytest.approx(learnt(losses))
    assert learnt(np.empty((0, 4))) == [0.25] * 4


def test_with_a_fading_memory_trust_moves_on() -> None:
    losses = np.array([[0.0, 1.0], [1.0, 0.0]] * 10 + [[0.0, 1.0]] * 400 + [[1.0, 0.0]] * 100)
    assert learnt(losses)[0] > 0.9
    assert learnt(losses, 0.98)[1] > 0.9

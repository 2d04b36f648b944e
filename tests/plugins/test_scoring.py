"""Scores of policies on tables against the control loop's own rule and plain sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learnable import HOUR, USUAL, learnable

from mirage.domain.decision import Submit, WaitForecast
from mirage.domain.errors import ConfigError
from mirage.plugin import Weights, at_level, forecast_scores, policy_scores, stacked_tables, submit_points
from mirage.provisioner.decide import DecisionRule, decide

TABLE = learnable(0, 6)


def decided(episode: int, waits: np.ndarray) -> int:
    """Where the control loop's rule submits, given these waits (hours)."""
    assert USUAL.predecessor is not None
    end = int(TABLE.end[episode])
    for index, now in enumerate(TABLE.submit[episode].tolist()):
        seen = replace(USUAL, time=now, predecessor=replace(USUAL.predecessor, end=end))
        if isinstance(decide(seen, WaitForecast.point(now + waits[index] * HOUR), DecisionRule()), Submit):
            return index
    raise AssertionError("the end of the predecessor is a submit time")


@given(st.integers(0, 10**6))
def test_points_are_where_the_control_loop_would_submit(seed: int) -> None:
    waits = np.random.default_rng(seed).integers(0, 24, TABLE.submit.shape) / 2
    assert submit_points(TABLE, waits).tolist() == [decided(k, row) for k, row in enumerate(waits)]


@given(st.integers(0, 10**6), st.floats(0, 3), st.floats(0, 3))
def test_scores_are_plain_sums(seed: int, interruption: float, overlap: float) -> None:
    index = np.random.default_rng(seed).integers(0, TABLE.submit.shape[1], len(TABLE))
    weights = Weights(interruption, overlap)
    found = policy_scores(TABLE, index, weights)
    outcomes = [TABLE.outcome(k, int(i)) for k, i in enumerate(index)]
    late = sum(o.interruption for o in outcomes) / len(outcomes) / HOUR
    early = sum(o.overlap for o in outcomes) / len(outcomes) / HOUR
    assert found["interruption"] == pytest.approx(late)
    assert found["overlap"] == pytest.approx(early)
    assert found["absolute_x"] == pytest.approx(late + early)
    assert found["objective"] == pytest.approx(-interruption * late - overlap * early)
    assert found["regret"] >= -1e-9
    assert found["within_30min"] == pytest.approx(np.mean([abs(o.x) <= HOUR / 2 for o in outcomes]))


def test_the_best_points_have_no_regret() -> None:
    assert policy_scores(TABLE, TABLE.best(Weights()), Weights())["regret"] == 0


def test_knowing_the_wait_is_a_forecast_without_loss() -> None:
    levels = (0.1, 0.5, 0.9)
    known = np.repeat((TABLE.wait / HOUR)[:, :, None], 3, axis=2)
    found = forecast_scores(TABLE, known, levels, Weights())
    assert found["pinball"] == 0
    assert found["coverage_80"] == 1
    off = forecast_scores(TABLE, known + 2, levels, Weights())
    assert off["pinball"] == pytest.approx(2 * 0.5)  # one less the level, on average over these levels
    assert off["coverage_80"] == 0


@given(st.floats(0, 1))
def test_between_levels_it_is_linear(level: float) -> None:
    levels, hours = (0.1, 0.5, 0.9), np.array([1.0, 3.0, 9.0])
    assert at_level(hours, levels, level) == pytest.approx(np.interp(level, levels, hours))


def test_stacked_tables_hold_all_and_only_alike_ones() -> None:
    other = learnable(1, 4)
    both = stacked_tables([TABLE, other])
    assert len(both) == 10
    assert (both.take(np.arange(6, 10)).start == other.start).all()
    shorter = replace(other, submit=other.submit[:, 1:])
    with pytest.raises(ConfigError, match="cannot be put together"):
        stacked_tables([TABLE, shorter])

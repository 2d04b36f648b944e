"""A table's arithmetic against loops over the one objective."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_tables import FIRST, made_up
from small_trace import HOUR

from mirage.domain.objective import Outcome, Weights, objective

weights = st.builds(Weights, st.floats(0, 5), st.floats(0, 5))


@given(st.integers(0, 1_000), weights)
def test_returns_are_the_objective_of_each_outcome_in_hours(seed: int, prices: Weights) -> None:
    table = made_up(seed)
    returns = table.returns(prices)
    for episode in range(len(table)):
        for index in range(table.submit.shape[1]):
            outcome = table.outcome(episode, index)
            assert outcome == Outcome(int(table.end[episode]), int(table.start[episode, index]))
            assert outcome.x == table.x[episode, index]
            assert returns[episode, index] == pytest.approx(objective(outcome, prices) / HOUR, abs=1e-9)


@given(st.integers(0, 1_000), weights)
def test_no_policy_beats_the_best_point(seed: int, prices: Weights) -> None:
    table = made_up(seed)
    best = table.returns_of(table.best(prices), prices)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        policy = rng.integers(table.submit.shape[1], size=len(table))
        assert (table.returns_of(policy, prices) <= best).all()


def test_of_equal_points_the_earliest_is_best() -> None:
    assert (made_up(0).best(Weights(0, 0)) == 0).all()


def test_spans_and_choices_keep_rows_together() -> None:
    table = made_up(1)
    for chosen, rows in (
        (table.take(np.array([3, 1])), [3, 1]),
        (table.between(FIRST, FIRST + 18 * HOUR), [1, 2]),
        (table.take(table.end < 0), []),
    ):
        assert len(chosen) == len(rows)
        for name in ("features", "submit", "start", "end", "episode_start", "nodes", "limit"):
            assert (getattr(chosen, name) == getattr(table, name)[rows]).all()

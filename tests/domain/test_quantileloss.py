"""The quantile loss: by hand, and least at the quantiles of a sample."""

from __future__ import annotations

import numpy as np
import pytest

from mirage.domain.quantileloss import pinball

LEVELS = (0.1, 0.5, 0.9)


@pytest.mark.parametrize(
    ("value", "loss"), [(5.0, [0.2, 1.0, 1.8]), (1.0, [1.8, 1.0, 0.2]), (3.0, [0.0, 0.0, 0.0])]
)
def test_loss_is_the_level_above_and_the_rest_below(value: float, loss: list[float]) -> None:
    assert pinball(value, [3.0, 3.0, 3.0], LEVELS) == pytest.approx(np.array(loss))


def test_values_and_quantiles_are_broadcast() -> None:
    values, quantiles = np.arange(6.0).reshape(2, 3), np.linspace(0, 4, 18).reshape(2, 3, 3)
    found = pinball(values, quantiles, LEVELS)
    for row, column in np.ndindex(2, 3):
        assert found[row, column] == pytest.approx(pinball(values[row, column], quantiles[row, column], LEVELS))
    assert pinball(values, quantiles[0, 0], LEVELS).shape == (2, 3, 3)


def test_loss_without_a_quantile_is_unknown() -> None:
    assert np.isnan(pinball(1.0, [np.nan, 2.0, 3.0], LEVELS)).tolist() == [True, False, False]


def test_loss_is_least_at_the_quantile() -> None:
    drawn = np.random.default_rng(0).exponential(5.0, 20_000)
    told = np.quantile(drawn, LEVELS)
    best = pinball(drawn, told, LEVELS).mean(axis=0)
    for shift in (-1.0, 0.3, 2.0):
        assert (pinball(drawn, told + shift, LEVELS).mean(axis=0) > best).all()

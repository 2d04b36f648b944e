"""While an evaluation that found it too early is valid, its predicted waits stay the same."""

from __future__ import annotations

import numpy as np

from mirage.domain.decision import WaitForecast
from mirage.predictors.lookahead import HOUR, _forecast, _later


def test_forecast_of_a_past_look_moves_with_the_time() -> None:
    seen = WaitForecast((0.1, 0.9), (100.0, 300.0))
    assert _later(seen, 700) == WaitForecast((0.1, 0.9), (800.0, 1_000.0))


def test_futures_in_which_it_does_not_start_are_told() -> None:
    starts = np.array([HOUR, 2 * HOUR, 120 * HOUR, 120 * HOUR])
    assert "in 2 of which it does not start within 120 h" in _forecast(starts, 0, 120 * HOUR).basis
    assert _forecast(starts[:2], 0, 120 * HOUR).basis == "2 futures"

"""While a look that found it too early holds, the waits that it foresaw stay as long as they were."""

from __future__ import annotations

from mirage.domain.decision import WaitForecast
from mirage.predictors.lookahead.predictor import _later


def test_forecast_of_a_past_look_moves_with_the_time() -> None:
    seen = WaitForecast((0.1, 0.9), (100.0, 300.0))
    assert _later(seen, 700) == WaitForecast((0.1, 0.9), (800.0, 1_000.0))

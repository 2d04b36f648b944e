"""Figures against plain loops, and against those of the replay."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest

from mirage.replay.metrics import Resampling, measure_panel
from mirage.replay.results import PairOutcome, build_panel
from mirage.training.evaluation.figures import calibration_of, figures_of
from mirage.training.evaluation.plan import EvaluationSetting, Method
from mirage.training.evaluation.playing import PlayedEpisode, ScoredForecast
from mirage.training.evaluation.schedule import Found

HOUR = 3_600
HOW = Resampling(block=2 * 86_400, resamples=300)
SETTING = EvaluationSetting(76, 1)


def episodes(x_hours, forecasts=()) -> tuple[PlayedEpisode, ...]:
    end = 10_000_000
    return tuple(
        PlayedEpisode(
            number=number,
            start=number * 4 * HOUR,
            predecessor_end=end,
            successor_submit=end - HOUR,
            successor_start=None if math.isnan(x) else end + round(x * HOUR),
            asked=10,
            seconds=0.02,
            troubles=(),
            forecasts=forecasts if number == 0 else (),
        )
        if not math.isnan(x)
        else PlayedEpisode(number, number * 4 * HOUR, None, None, None, 0, 0.0, ("no first link",))
        for number, x in enumerate(x_hours)
    )


def runs(method: Method, *x) -> list[Found]:
    return [Found(SETTING, run, episodes(one), None) for run, one in zip(method.runs, x, strict=True)]


def drawn(seed: int, scale: float, count: int = 120) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(0, scale, count) + scale * np.sin(np.arange(count) / 9), 2)


def test_means_over_seeds_against_plain_loops() -> None:
    reactive, oracle = abs(drawn(1, 5)), drawn(2, 0.2)
    seeds = [drawn(3, 2), drawn(4, 2), drawn(5, 2)]
    found = [
        *runs(Method("reactive"), reactive),
        *runs(Method("oracle"), oracle),
        *runs(Method("xgboost", ("xgboost",), 3), *seeds),
    ]
    row = figures_of(found, HOW).rows[2]
    values = [[float(x) for x in one] for one in seeds]
    every = [x for one in values for x in one]
    mean = sum(map(abs, every)) / len(every)
    assert row.distance.mean.value == pytest.approx(mean)
    assert row.interruption.mean.value == pytest.approx(sum(max(0, x) for x in every) / len(every))
    assert row.overlap.mean.value == pytest.approx(sum(max(0, -x) for x in every) / len(every))
    assert row.close.mean.value == pytest.approx(sum(abs(x) <= 0.5 for x in every) / len(every))
    assert row.uninterrupted.mean.value == pytest.approx(sum(x <= 60 / HOUR for x in every) / len(every))
    by_seed = [sum(map(abs, one)) / len(one) for one in values]
    assert (row.distance.least, row.distance.most) == pytest.approx((min(by_seed), max(by_seed)))
    top, floor = (sum(map(abs, map(float, x))) / len(x) for x in (reactive, oracle))
    assert row.gap_closed.mean.value == pytest.approx((top - mean) / (top - floor))
    assert row.regret.mean.value == pytest.approx(mean - floor)
    assert row.less_interrupted.mean.value == pytest.approx(
        1 - row.interruption.mean.value / float(reactive.mean())
    )
    assert row.decision_ms == pytest.approx(2.0)
    assert row.gap_closed.mean.low < row.gap_closed.mean.value < row.gap_closed.mean.high


def test_a_single_seed_is_what_the_replay_says_intervals_and_all() -> None:
    x = {"reactive": abs(drawn(1, 5)), "quantile": drawn(6, 3), "oracle": drawn(2, 0.2)}
    found = [one for name, values in x.items() for one in runs(Method(name), values)]
    outcomes = [
        PairOutcome(name, n, n * 4 * HOUR, 0, 0, 0, 0, 0, round(float(v) * HOUR), "")
        for name, values in x.items()
        for n, v in enumerate(values)
    ]
    theirs = measure_panel(build_panel(tuple(x), outcomes), HOW)
    for row in figures_of(found, HOW).rows:
        other = theirs.row(row.method.name)
        pairs = [
            (row.distance, other.distance_mean),
            (row.interruption, other.interruption_mean),
            (row.overlap, other.overlap_mean),
            (row.close, other.close_share),
            (row.uninterrupted, other.uninterrupted_share),
            (row.less_interrupted, other.reduction),
            (row.gap_closed, other.gap_closed),
            (row.regret, other.regret),
        ]
        for ours, estimate in pairs:
            assert astuple(ours.mean) == pytest.approx(astuple(estimate), nan_ok=True)


def test_methods_are_compared_on_the_hand_overs_that_all_have() -> None:
    whole, holed = np.ones(30), np.full(30, 2.0)
    holed[:5] = math.nan
    whole[:5] = 100.0
    found = [*runs(Method("reactive"), whole), *runs(Method("quantile"), holed)]
    figures = figures_of(found, HOW)
    assert [row.distance.mean.value for row in figures.rows] == [1.0, 2.0]
    assert figures.left_out == ((SETTING, 5),)
    assert figures.rows[0].gap_closed is None
    assert figures.rows[1].troubles == 5


def test_calibration_against_plain_loops() -> None:
    rng = np.random.default_rng(0)
    levels = (0.1, 0.25, 0.5, 0.75, 0.9)
    forecasts = [
        ScoredForecast(
            HOUR, levels, tuple(np.sort(rng.exponential(9_000, 5)).tolist()), int(rng.exponential(9_000))
        )
        for _ in range(50)
    ]
    found = calibration_of([*forecasts, ScoredForecast(HOUR, (), (), 5)])
    losses, covered, errors = [], 0, []
    for one in forecasts:
        for level, wait in zip(levels, one.waits, strict=True):
            off = (one.wait - wait) / HOUR
            losses.append(level * off if off > 0 else (level - 1) * off)
        covered += one.waits[0] <= one.wait <= one.waits[-1]
        errors.append(abs(one.waits[2] - one.wait) / HOUR)
    assert (found.asked, found.answered) == (51, 50)
    assert found.pinball == pytest.approx(sum(losses) / len(losses))
    assert found.coverage == pytest.approx(covered / 50)
    assert found.error_median == pytest.approx(sorted(errors)[24] / 2 + sorted(errors)[25] / 2)


def test_a_forecast_of_one_instant_has_no_coverage() -> None:
    found = calibration_of([ScoredForecast(HOUR, (0.5,), (HOUR,), 3 * HOUR)])
    assert found.coverage is None
    assert found.pinball == pytest.approx(sum(level * 2 for level in (0.1, 0.25, 0.5, 0.75, 0.9)) / 5)
    assert calibration_of([ScoredForecast(HOUR, (), (), 1)]) is None

"""Forecasts combined: by whom, how, and how well they are calibrated in the long run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from queues import HOUR, Told, queue

from mirage.domain.decision import ActionScores, WaitForecast, Wants
from mirage.domain.errors import ConfigError
from mirage.plugin import check_predictor, sample_observation
from mirage.predictors.ensemble import LEVELS, Ensemble, ensemble_of
from mirage.predictors.past_predictions import SPACING
from mirage.predictors.registry import build_predictor

if TYPE_CHECKING:
    from mirage.domain.decision import Observation

DAY = 24 * HOUR
EXPONENTIAL = tuple(-math.log(1 - level) for level in LEVELS)
"""Quantiles of the standard exponential distribution."""


def telling(name: str, scale: float) -> Told:
    """Predicts exponential waits of this mean."""
    return Told(
        name, Wants(), lambda seen: WaitForecast(LEVELS, tuple(seen.time + scale * q for q in EXPONENTIAL))
    )


def failing(name: str) -> Told:
    def fails(_: Observation) -> WaitForecast:
        raise ValueError(f"{name} is lost")

    return Told(name, Wants(), fails)


def waits(ensemble: Ensemble, seen: Observation) -> np.ndarray:
    return np.array(ensemble.predict(seen).starts) - seen.time


def live(ensemble: Ensemble, days: int, mean: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """All answers, shape (times, levels), and for each job whether it was covered: a job a time."""
    jobs = queue(np.random.default_rng(seed), days, mean)
    told = np.array([waits(ensemble, jobs.seen(at - 60)) for at in jobs.submit.tolist()])
    return told, jobs.wait[:, None] <= told


def test_before_any_outcome_quantiles_are_averaged() -> None:
    seen = sample_observation()
    found = waits(Ensemble([telling("a", HOUR), telling("b", 3 * HOUR)], "both"), seen)
    assert found == pytest.approx(2 * HOUR * np.array(EXPONENTIAL))


def test_one_that_fails_or_foresees_nothing_is_left_out_and_that_is_said_once(caplog) -> None:
    scores = Told("scores", Wants(), lambda _: ActionScores(1, 0))
    broken = Told("nan", Wants(), lambda _: WaitForecast.point(math.nan))
    ensemble = Ensemble([telling("a", HOUR), failing("b"), scores, broken], "four")
    seen = sample_observation()
    for later in range(3):
        found = waits(ensemble, replace(seen, time=seen.time + 60 * later))
        assert found == pytest.approx(HOUR * np.array(EXPONENTIAL))
    assert [record.getMessage() for record in caplog.records] == [
        "four answers without b: b is lost",
        "four answers without scores: scores actions and predicts no start",
        "four answers without nan: predicted nothing usable: WaitForecast(levels=(0.5,), starts=(nan,))",
    ]


def test_the_forecast_beside_scores_counts() -> None:
    seen = sample_observation()
    scored = Told("c", Wants(), lambda s: ActionScores(1, 0, WaitForecast.point(s.time + 4 * HOUR)))
    found = waits(Ensemble([scored, failing("b")], "both"), seen)
    assert found == pytest.approx([4 * HOUR] * len(LEVELS))


def test_where_nobody_foresees_anything_it_says_why() -> None:
    with pytest.raises(ValueError, match=r"a: a is lost; b: b is lost"):
        Ensemble([failing("a"), failing("b")], "both").predict(sample_observation())


def test_whoever_foresees_better_is_relied_on() -> None:
    told, _ = live(Ensemble([telling("a", 2 * HOUR), telling("b", 12 * HOUR)], "both"), 4, 2 * HOUR)
    true = 2 * HOUR * np.array(EXPONENTIAL)
    assert told[0] == pytest.approx(3.5 * true)
    middle = slice(2, 6)  # P25 to P90
    assert told[-1, middle] == pytest.approx(true[middle], rel=0.35)


@pytest.mark.parametrize("scale", [0.3, 4.0])
def test_when_all_are_wrong_the_answers_still_cover_what_they_say(scale: float) -> None:
    """Jobs wait 2 h in the mean; all members predict a third of that, or four times as much."""
    ensemble = Ensemble([telling("a", scale * 2 * HOUR), telling("b", 1.2 * scale * 2 * HOUR)], "both")
    _, covered = live(ensemble, 6, 2 * HOUR)
    late = covered[3 * 144 :].mean(axis=0)
    assert np.abs(late - LEVELS).max() < 0.05
    alone = 1 - np.exp(-scale * np.array(EXPONENTIAL))
    assert np.abs(alone - LEVELS).max() > 0.2


def test_a_change_of_the_queue_is_followed() -> None:
    """Waits grow fourfold; what was right is right no more."""
    ensemble = Ensemble([telling("a", HOUR), telling("b", 1.1 * HOUR)], "both")
    jobs = queue(np.random.default_rng(2), 7, HOUR)
    jobs = replace(jobs, wait=np.where(jobs.submit < 2 * DAY, jobs.wait, 4 * jobs.wait))
    told = np.array([waits(ensemble, jobs.seen(at - 60)) for at in jobs.submit.tolist()])
    covered = (jobs.wait[:, None] <= told)[4 * 144 :].mean(axis=0)
    assert np.abs(covered - LEVELS).max() < 0.05


def test_it_holds_to_what_predictors_must_after_experience_too() -> None:
    ensemble = ensemble_of("average+quantile+slurm", build_predictor)
    check_predictor(ensemble)
    jobs = queue(np.random.default_rng(1), 3, HOUR)
    for now in range(DAY, 3 * DAY, SPACING):
        ensemble.predict(jobs.seen(now, now + 2 * HOUR))
    check_predictor(ensemble, [jobs.seen(now, now + HOUR) for now in range(3 * DAY, 3 * DAY + 3 * HOUR, 1_000)])
    assert ensemble.wants == Wants(waits=1_000, queue=True, plan=True)


def test_members_are_named_with_a_plus_between_them() -> None:
    extra = {"mine": lambda parameter: telling(f"mine:{parameter}", float(parameter) * HOUR)}
    ensemble = build_predictor("ensemble:mine:1+ fixed:3h", extra)
    assert ensemble.name == "ensemble:mine:1+ fixed:3h"
    found = waits(ensemble, sample_observation())
    assert found == pytest.approx(HOUR * (np.array(EXPONENTIAL) + 3) / 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ensemble", "needs two members or more, such as ensemble:lookahead"),
        ("ensemble:quantile", "needs two members or more"),
        ("ensemble:quantile+", "needs two members or more"),
        ("ensemble:quantile+quantile", "names a member twice"),
        ("ensemble:quantile+crystal-ball", "no predictor 'crystal-ball'"),
        ("ensemble:quantile+fixed", "needs a lead"),
        ("ensemble:average+ensemble:quantile+reactive", "cannot be a member of another"),
    ],
)
def test_a_wrong_list_of_members_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_predictor(text)

"""An owner's objective for handovers: written, read from forecasts, and met in the long run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirage.domain.chain import HandoverPolicy, HandoverSettings
from mirage.domain.decision import ActionScores, Defer, Observation, RecentWaits, Submit, WaitForecast
from mirage.domain.errors import BadSpelling
from mirage.domain.job import Job, JobId, JobRequest, JobState, WarnSignal
from mirage.domain.objective import CHEAPEST, Objective, ObjectiveKind
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.provisioner.decide import DecisionRule, chance_before, expected_overlap, weigh
from mirage.provisioner.objectives import format_objective, parse_objective, problem_of

HOUR = 3_600
END = 48 * HOUR
LEVELS = tuple(np.linspace(0.005, 0.995, 199).tolist())


def at(now: int, end: int = END) -> Observation:
    none = JobColumns.none()
    predecessor = Job(JobId(1), "s", "u", "p", 1, END, JobState.RUNNING, 0, 0, end)
    request = JobRequest("s", "u", 1)
    return Observation(now, Snapshot(now, none, none, (), (), (), ()), predecessor, request, RecentWaits.none())


def exponential(now: int, mean: float) -> WaitForecast:
    return WaitForecast(LEVELS, tuple(now - mean * math.log(1 - level) for level in LEVELS))


@st.composite
def forecasts(draw: st.DrawFn) -> WaitForecast:
    levels = draw(st.lists(st.integers(0, 100), min_size=1, max_size=8, unique=True))
    starts = draw(st.lists(st.integers(0, 2_000), min_size=len(levels), max_size=len(levels)))
    return WaitForecast(tuple(sorted(level / 100 for level in levels)), tuple(map(float, sorted(starts))))


def drawn(forecast: WaitForecast, count: int = 40_000) -> np.ndarray:
    """Starts at this number of levels, evenly: the forecast as a sample."""
    middle = (np.arange(count) + 0.5) / count
    if len(forecast.starts) == 1:
        return np.full(count, forecast.starts[0])
    return np.interp(middle, forecast.levels, forecast.starts)


@given(forecasts(), st.integers(-10, 2_010))
def test_chances_and_means_are_those_of_a_sample(forecast: WaitForecast, instant: int) -> None:
    starts = drawn(forecast)
    assert chance_before(forecast, instant) == pytest.approx((starts < instant).mean(), abs=1e-3)
    overlap = np.maximum(instant - starts, 0).mean()
    assert expected_overlap(forecast, instant) == pytest.approx(overlap, abs=0.1)


def first_submission(aim: Objective, mean: float, **rule: float) -> int:
    """Deciding each minute, the wait being drawn again at each from the same exponential distribution."""
    decided = DecisionRule(aim=aim, **rule)
    for now in range(0, END, 60):
        if isinstance(weigh(at(now), exponential(now, mean), decided), Submit):
            return now
    return END


@pytest.mark.parametrize("chance", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("mean", [HOUR, 6 * HOUR])
def test_so_many_start_in_time_as_are_wanted(chance: float, mean: float) -> None:
    left = END - first_submission(Objective(ObjectiveKind.NO_INTERRUPTION, chance), mean)
    assert 1 - math.exp(-left / mean) == pytest.approx(chance, abs=0.02)


@pytest.mark.parametrize("allowed", [0, HOUR // 2, 3 * HOUR])
@pytest.mark.parametrize("mean", [HOUR, 6 * HOUR])
def test_no_more_overlap_is_expected_than_is_allowed_and_no_less(allowed: int, mean: float) -> None:
    left = END - first_submission(Objective(ObjectiveKind.OVERLAP, allowed), mean)
    expected = left - mean * (1 - math.exp(-left / mean))
    assert expected <= allowed + 0.01 * mean
    assert expected >= allowed - 0.01 * mean - 60


@given(forecasts(), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_to_want_more_never_submits_later(forecast: WaitForecast, one: float, two: float) -> None:
    def submits(aim: Objective) -> bool:
        return isinstance(weigh(at(0, 1_000), forecast, DecisionRule(aim=aim)), Submit)

    low, high = sorted((one, two))
    for kind, unit in ((ObjectiveKind.NO_INTERRUPTION, 1.0), (ObjectiveKind.OVERLAP, 1_000.0)):
        assert submits(Objective(kind, unit * high)) or not submits(Objective(kind, unit * low))


@given(forecasts(), st.integers(1, 1_500), st.floats(0.1, 0.9), st.floats(0, 0.5))
def test_with_making_way_it_submits_when_a_little_later_would_cost_more(
    forecast: WaitForecast, together: int, level: float, early: float
) -> None:
    """Costs written out for a sample of starts, and the slope taken between two times."""
    starts, end = drawn(forecast), 1_000.0
    edges = np.array([end, end - together])
    # Where many starts are one time, and that is an edge, the cost has a corner and no slope.
    assume((np.abs(starts[:, None] - edges) <= 0.5).any(axis=1).mean() < 0.01)

    def cost(later: float) -> float:
        x = starts + later - end
        overlap = np.maximum(-x, 0)
        both = (1 - level) * np.minimum(overlap, together) + early * np.maximum(overlap - together, 0)
        return float((level * np.maximum(x, 0) + both).mean())

    slope = (cost(0.1) - cost(-0.1)) / 0.2
    assume(abs(slope) > 0.02)
    rule = DecisionRule(level=level, early=early, together=float(together))
    assert isinstance(weigh(at(0, int(end)), forecast, rule), Submit) == (slope > 0)


def test_a_hand_over_that_costs_little_leans_to_early_starts() -> None:
    """Exponential waits: the median; where predecessors exit, at a quarter of the price, the 80 % that follow."""
    mean, rule = 6 * HOUR, DecisionRule(early=0.125)
    plain = END - first_submission(CHEAPEST, mean)
    makes_way = END - first_submission(CHEAPEST, mean, early=rule.early, together=0.0)
    assert plain == pytest.approx(mean * math.log(2), abs=200)
    assert makes_way == pytest.approx(mean * math.log(5), abs=200)
    assert plain <= END - first_submission(CHEAPEST, mean, early=0.125, together=2.0 * HOUR) <= makes_way


@pytest.mark.parametrize(
    ("handover", "seconds"),
    [
        (HandoverSettings(), math.inf),
        (HandoverSettings(max_overlap=600), 600),
        (HandoverSettings(HandoverPolicy.ON_START, WarnSignal("TERM", 90)), 90),
        (HandoverSettings(HandoverPolicy.ON_START, WarnSignal("TERM", 90), 600), 90),
        (HandoverSettings(HandoverPolicy.WHEN_READY, WarnSignal("TERM", 90)), 90),
        (HandoverSettings(HandoverPolicy.WHEN_READY, WarnSignal("TERM", 90), 600), 600),
    ],
)
def test_how_long_both_run_is_the_hand_overs_to_say(handover: HandoverSettings, seconds: float) -> None:
    assert handover.together == seconds


def test_scores_decide_for_prices_and_the_forecast_beside_them_for_all_else() -> None:
    early = WaitForecast((0.1, 0.9), (END - 9_000.0, END - 1_000.0))
    scores = ActionScores(submit=1.0, hold=0.0, forecast=early)
    wanted = Objective(ObjectiveKind.NO_INTERRUPTION, 0.5)
    assert isinstance(weigh(at(0), scores, DecisionRule()), Submit)
    assert isinstance(weigh(at(0), scores, DecisionRule(aim=wanted)), Defer)
    assert isinstance(weigh(at(0), scores, DecisionRule(together=0.0)), Defer)
    blind = weigh(at(0), replace(scores, forecast=None), DecisionRule(aim=wanted))
    assert isinstance(blind, Submit)
    assert blind.reason.endswith("; no-interruption needs a predicted start, and there is none")


def test_the_sentences_say_what_was_weighed() -> None:
    now = END - 4 * HOUR
    chance = weigh(
        at(now), exponential(now, 2 * HOUR), DecisionRule(aim=Objective(ObjectiveKind.NO_INTERRUPTION, 0.8))
    )
    assert chance == Defer("submitted now it starts in time with probability 86% (objective 80%)")
    overlap = weigh(at(now), exponential(now, 2 * HOUR), DecisionRule(aim=Objective(ObjectiveKind.OVERLAP, 1_800)))
    assert overlap == Defer("submitted now its expected overlap is 2.3 h (objective at most 30 min)")


@pytest.mark.parametrize(
    ("text", "aim"),
    [
        ("cheapest", CHEAPEST),
        ("no-interruption=90%", Objective(ObjectiveKind.NO_INTERRUPTION, 0.9)),
        (" no-interruption = 0.995 ", Objective(ObjectiveKind.NO_INTERRUPTION, 0.995)),
        ("overlap=30m", Objective(ObjectiveKind.OVERLAP, 1_800)),
        ("overlap=0s", Objective(ObjectiveKind.OVERLAP, 0)),
    ],
)
def test_aims_are_read_and_spelled(text: str, aim: Objective) -> None:
    assert parse_objective(text) == aim
    assert parse_objective(format_objective(aim)) == aim


@given(st.text(max_size=20) | st.sampled_from(["cheapest=1", "overlap", "overlap=", "no-interruption=100%", "=1"]))
def test_any_text_is_an_aim_or_a_clear_error(text: str) -> None:
    try:
        aim = parse_objective(text)
    except BadSpelling:
        return
    assert problem_of(aim) == ""


@pytest.mark.parametrize(
    "text", ["no-interruption=100%", "no-interruption=0", "no-interruption=9%x", "overlap=-5m"]
)
def test_what_nothing_could_meet_is_refused(text: str) -> None:
    with pytest.raises(BadSpelling):
        parse_objective(text)

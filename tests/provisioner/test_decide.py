"""Submit or hold: the rule, its exceptions and its bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.api.routes.predictions import quantiles
from mirage.domain.decision import ActionScores, Defer, Observation, RecentWaits, Submit, WaitForecast
from mirage.domain.job import ABSENT, NEVER, Job, JobId, JobRequest, JobState
from mirage.domain.objective import Objective, ObjectiveKind
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.predictors.registry import build_predictor
from mirage.provisioner.decide import DecisionRule, decide, submission_due

RULE = DecisionRule()


def observed(
    now: int, end: int = 1_000, state: JobState = JobState.RUNNING, *, stale: bool = False, first: bool = False
) -> Observation:
    none = JobColumns.none()
    snapshot = Snapshot(now, none, none, (), (), (), (), stale_since=now - 5 if stale else ABSENT)
    predecessor = Job(JobId(1), "s", "u", "p", 1, 1_000, state, 0, 0, end)
    return Observation(now, snapshot, None if first else predecessor, JobRequest("s", "u", 1), RecentWaits.none())


@given(now=st.integers(0, 999), wait=st.integers(0, 2_000))
def test_it_submits_exactly_when_the_start_would_reach_the_end(now: int, wait: int) -> None:
    decision = decide(observed(now), WaitForecast.point(now + wait), RULE)
    assert isinstance(decision, Submit) == (now + wait >= 1_000)


@given(now=st.integers(0, 999), start=st.integers(0, 2_000), margins=st.tuples(*[st.integers(0, 500)] * 2))
def test_a_larger_margin_never_submits_later(now: int, start: int, margins: tuple[int, int]) -> None:
    small, large = (
        isinstance(decide(observed(now), WaitForecast.point(start), DecisionRule(margin=m)), Submit)
        for m in sorted(margins)
    )
    assert large or not small


@given(st.integers(0, 999), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_the_higher_score_wins_and_a_tie_submits(now: int, submit: float, hold: float) -> None:
    decision = decide(observed(now), ActionScores(submit, hold), RULE)
    assert isinstance(decision, Submit) == (submit >= hold)


@given(prediction=st.sampled_from([WaitForecast.point(0), ActionScores(0, 1)]), now=st.integers(1_000, 5_000))
def test_a_predecessor_that_has_ended_forces_the_submission(prediction: WaitForecast, now: int) -> None:
    assert isinstance(decide(observed(now), prediction, RULE), Submit)
    assert isinstance(decide(observed(5, state=JobState.FAILED), prediction, RULE), Submit)
    assert isinstance(decide(observed(5, first=True), prediction, RULE), Submit)


@pytest.mark.parametrize("name", ["reactive", "fixed:5m"])
@given(now=st.integers(0, 999))
def test_rule_is_told_as_a_rule_and_not_as_a_forecast(name: str, now: int) -> None:
    prediction = build_predictor(name).predict(observed(now))
    decision = decide(observed(now), prediction, RULE)
    assert isinstance(decision, Submit) == (name != "reactive" and now + 300 >= 1_000)
    assert "it submits" in decision.reason
    assert "would wait" not in decision.reason
    assert isinstance(prediction, WaitForecast)
    assert quantiles(prediction) == (ABSENT, ABSENT, ABSENT)


def test_stale_data_holds_whatever_else() -> None:
    for observation in (observed(2_000, stale=True), observed(0, stale=True, first=True)):
        decision = decide(observation, ActionScores(1, 0), RULE)
        assert isinstance(decision, Defer)
        assert "does not answer" in decision.reason


@pytest.mark.parametrize(
    ("state", "now"), [(JobState.PENDING, 5), (JobState.SUSPENDED, 5), (JobState.SUSPENDED, 20_000)]
)
def test_an_end_not_known_holds(state: JobState, now: int) -> None:
    decision = decide(observed(now, end=ABSENT + 10_000, state=state), WaitForecast.point(9_999), RULE)
    assert isinstance(decision, Defer)


@pytest.mark.parametrize(("level", "start"), [(0.0, 10), (0.1, 10), (0.3, 30), (0.5, 50), (0.7, 70), (1.0, 90)])
def test_a_forecast_is_read_between_its_levels(level: float, start: float) -> None:
    assert WaitForecast((0.1, 0.5, 0.9), (10, 50, 90)).at(level) == pytest.approx(start)


def test_the_level_decides_between_an_early_and_a_late_reading() -> None:
    forecast = WaitForecast((0.1, 0.9), (500, 1_500))
    assert isinstance(decide(observed(0), forecast, DecisionRule(level=0.9)), Submit)
    assert isinstance(decide(observed(0), forecast, DecisionRule(level=0.1)), Defer)


RULES = [
    DecisionRule(),
    DecisionRule(level=0.3, margin=60),
    DecisionRule(together=120.0),
    DecisionRule(aim=Objective(ObjectiveKind.NO_INTERRUPTION, 0.9)),
    DecisionRule(aim=Objective(ObjectiveKind.OVERLAP, 90.0)),
]


@given(
    now=st.integers(0, 900),
    waits=st.lists(st.integers(0, 1_500), min_size=3, max_size=3).map(sorted),
    rule=st.sampled_from(RULES),
)
def test_submission_falls_due_at_the_first_instant_that_submits(
    now: int, waits: list[int], rule: DecisionRule
) -> None:
    """Against the times tried one by one, the wait being the same at each."""

    def forecast_at(instant: int) -> WaitForecast:
        return WaitForecast((0.1, 0.5, 0.9), tuple(instant + wait for wait in waits))

    def submits(instant: int) -> bool:
        return isinstance(decide(observed(instant), forecast_at(instant), rule), Submit)

    if submits(now):
        return
    due = submission_due(observed(now), forecast_at(now), rule)
    assert submits(due)
    assert not (submits(due - 1) and submits(due - 2)), "a second is what rounding may cost"
    if rule.together == float(
        "inf"
    ):  # else a link that starts far too early may cost less than one a bit too early
        first = next(instant for instant in range(now, 1_001) if submits(instant))
        assert abs(due - first) <= 1, "a second is what rounding may cost"


def test_scores_alone_say_of_no_instant_when_a_submission_is_due() -> None:
    assert submission_due(observed(0), ActionScores(0, 1), RULE) == NEVER

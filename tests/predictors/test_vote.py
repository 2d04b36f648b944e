"""A vote does what most of its members would do by themselves."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from queues import HOUR, Told

from mirage.domain.decision import ActionScores, Submit, WaitForecast, Wants
from mirage.domain.errors import ConfigError
from mirage.domain.objective import Objective, ObjectiveKind, Weights
from mirage.plugin import check_predictor, sample_observation
from mirage.predictors.ensemble import Vote
from mirage.predictors.registry import build_predictor
from mirage.provisioner.decide import DecisionRule, weigh

if TYPE_CHECKING:
    from mirage.domain.decision import Observation, Prediction

SEEN = sample_observation()
assert SEEN.predecessor is not None
LEFT = SEEN.predecessor.end - SEEN.time
"""Seconds that the predecessor has left."""


def waits(name: str, *hours: float) -> Told:
    """Predicts waits from the least to the most of these, all alike likely."""
    levels = tuple(place / (len(hours) - 1) for place in range(len(hours))) if len(hours) > 1 else (0.5,)
    return Told(
        name, Wants(), lambda s: WaitForecast(levels, tuple(s.time + LEFT + hour * HOUR for hour in hours))
    )


def scores(name: str, submit: float) -> Told:
    return Told(name, Wants(), lambda _: ActionScores(submit, 0.0))


def failing(name: str) -> Told:
    def fails(_: Observation) -> WaitForecast:
        raise ValueError(f"{name} is lost")

    return Told(name, Wants(), fails)


def submits(prediction: Prediction, rule: DecisionRule) -> bool:
    return isinstance(weigh(SEEN, prediction, rule), Submit)


@given(
    offsets=st.lists(st.tuples(st.booleans(), st.floats(-20, 20), st.floats(0, 10)), min_size=2, max_size=7),
    prices=st.sampled_from([Weights(), Weights(3.0, 1.0), Weights(1.0, 4.0)]),
)
def test_majority_of_what_each_would_do_by_itself(
    offsets: list[tuple[bool, float, float]], prices: Weights
) -> None:
    """``offsets``: whether a member scores, and what it says."""
    members = [
        scores(str(place), low) if scored else waits(str(place), low, low + spread)
        for place, (scored, low, spread) in enumerate(offsets)
    ]
    rule = DecisionRule(level=prices.critical_level)
    alone = [submits(member.predict(SEEN), rule) for member in members]
    together = submits(Vote(members, "vote", prices).predict(SEEN), rule)
    assert together == (sum(alone) > len(alone) / 2)


@pytest.mark.parametrize("votes", list(product([True, False], repeat=3)))
def test_sentence_says_who_would_do_what(votes: tuple[bool, ...]) -> None:
    members = [scores(name, 1 if vote else -1) for name, vote in zip("abc", votes, strict=True)]
    decision = weigh(SEEN, Vote(members, "vote", Weights()).predict(SEEN), DecisionRule())
    assert f"{sum(votes)} of 3 would submit now" in decision.reason
    for name, vote in zip("abc", votes, strict=True):
        side = decision.reason.partition(": ")[2].split("; ")[0 if vote else -1]
        assert name in side.removesuffix(" would submit now").removesuffix(" would hold").split(", ")


def test_one_that_fails_has_no_vote_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    broken = Told("nan", Wants(), lambda _: WaitForecast.point(math.nan))
    vote = Vote([waits("a", 1.0), failing("b"), broken, scores("c", 1)], "vote", Weights())
    for _ in range(2):
        prediction = vote.predict(SEEN)
        assert isinstance(prediction, ActionScores)
        assert prediction.basis == "2 of 2 would submit now: a, c would submit now"
    assert len(caplog.records) == 2


def test_where_no_member_answers_it_says_why() -> None:
    with pytest.raises(ValueError, match=r"a: a is lost; b: b is lost"):
        Vote([failing("a"), failing("b")], "vote", Weights()).predict(SEEN)


def test_without_predecessor_the_mean_forecast_is_the_answer() -> None:
    alone = replace(SEEN, predecessor=None)
    found = Vote([waits("a", 1.0), waits("b", 3.0)], "vote", Weights()).predict(alone)
    assert isinstance(found, WaitForecast)
    assert found.at(0.5) == pytest.approx(SEEN.time + LEFT + 2 * HOUR)
    with pytest.raises(ValueError, match="score"):
        Vote([scores("a", 1), scores("b", 1)], "vote", Weights()).predict(alone)


def test_chain_that_wants_something_else_is_decided_by_the_mean_forecast() -> None:
    rule = replace(DecisionRule(), aim=Objective(ObjectiveKind.NO_INTERRUPTION, 0.9))
    members = [scores("a", -1), scores("b", -1), waits("c", -3.0, 1.0)]
    assert not submits(Vote(members, "vote", Weights()).predict(SEEN), DecisionRule())
    assert submits(Vote(members, "vote", Weights()).predict(SEEN), rule)


def test_vote_is_built_by_name() -> None:
    check_predictor(build_predictor("vote:quantile+average+reactive"))
    for bad in ("vote", "vote:quantile", "vote:quantile+vote:a+b", "vote:quantile+ensemble:average+slurm"):
        with pytest.raises(ConfigError):
            build_predictor(bad)

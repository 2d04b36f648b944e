"""The predictor that is the best of those at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from queues import HOUR, Told

from mirage.domain.decision import ActionScores, WaitForecast, Wants
from mirage.domain.errors import ConfigError
from mirage.domain.objective import Weights
from mirage.plugin import check_predictor, sample_observation
from mirage.predictors.auto import ASK_AGAIN, Auto, Candidates
from mirage.predictors.ensemble import Vote
from mirage.predictors.registry import build_predictor

if TYPE_CHECKING:
    from mirage.domain.decision import Observation

SEEN = sample_observation()


def waiting(name: str, hours: float, **wants: int) -> Told:
    return Told(name, Wants(**wants), lambda seen: WaitForecast.point(seen.time + hours * HOUR))


def failing(name: str) -> Told:
    def fails(_: Observation) -> WaitForecast:
        raise ValueError(f"{name} is lost")

    return Told(name, Wants(), fails)


USUAL = waiting("quantile", 1.0)


def auto(*informed: Told, missing: str = "") -> Auto:
    return Auto(Candidates(informed, missing), USUAL, Weights())


def wait(prediction: object) -> float:
    assert isinstance(prediction, WaitForecast)
    return (prediction.at(0.5) - SEEN.time) / HOUR


def test_three_that_answer_vote() -> None:
    members = (waiting("a", 0.0), failing("b"), waiting("c", 200.0), waiting("d", 0.0))
    found = auto(*members).predict(SEEN)
    assert found == Vote(members, "vote", Weights()).predict(SEEN)
    assert isinstance(found, ActionScores)
    assert (found.submit, found.hold) == (1, 2.5)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ((), 1.0),
        ((failing("a"),), 1.0),
        ((waiting("a", 2.0),), 2.0),
        ((waiting("a", 2.0), waiting("b", 3.0)), 2.0),
        ((failing("a"), waiting("b", 3.0), waiting("c", 4.0)), 3.0),
    ],
)
def test_best_that_answers_decides_where_too_few_do(members: tuple[Told, ...], expected: float) -> None:
    assert wait(auto(*members).predict(SEEN)) == expected


def test_reason_names_who_decided_and_what_others_would_do() -> None:
    found = auto(waiting("best", 2.0), waiting("other", 500.0)).predict(SEEN)
    assert isinstance(found, WaitForecast)
    assert "best" in found.basis
    assert "other would submit now" in found.basis


def test_missing_candidates_are_looked_for_again_until_all_are_there() -> None:
    """The usual one answers what was observed before they were found, as it lacks what they want."""
    looks = [Candidates(missing="Slurm does not answer"), Candidates((waiting("best", 2.0, history=9),))]
    found = Auto(Candidates(missing="not looked yet"), USUAL, Weights(), lambda: looks.pop(0))
    late = SEEN.time + ASK_AGAIN
    at = [SEEN.time, SEEN.time + 1, late, late, late + 60]
    answers, wanted = [], []
    for time in at:
        answers.append(found.predict(replace(SEEN, time=time)))
        wanted.append(found.wants.history)
    hours = [(answer.at(0.5) - time) / HOUR for answer, time in zip(answers, at, strict=True)]  # type: ignore[union-attr]
    assert hours == [1.0, 1.0, 1.0, 1.0, 2.0], "earlier observations had no required inputs"
    assert wanted == [0, 0, 9, 9, 9]
    assert not looks


def test_instead_of_the_usual_one() -> None:
    found = Auto(Candidates(instead=waiting("reactive", 0.0)), USUAL, Weights())
    assert wait(found.predict(SEEN)) == 0.0


@pytest.mark.parametrize("name", ["auto", "auto:average", "auto:average+slurm+fixed:2h"])
def test_by_name(name: str) -> None:
    predictor = build_predictor(name)
    assert predictor.name == name
    check_predictor(build_predictor(name))


@pytest.mark.parametrize("name", ["auto:vote:a+b", "auto:+average", "auto:average+average", "auto:" + "a+" * 9])
def test_bad_members_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="auto"):
        build_predictor(name)

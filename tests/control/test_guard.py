"""The guard: whatever a predictor does, there is an answer, and it says whose it is."""

from __future__ import annotations

import math
import threading
import time

import pytest

from mirage.control.guard import PredictorGuard
from mirage.domain.decision import ActionScores, Observation, RecentWaits, WaitForecast, Wants
from mirage.domain.job import JobRequest
from mirage.domain.snapshot import Snapshot
from mirage.predictors.baselines import Reactive

SEEN = Observation(100, Snapshot.unseen(100), None, JobRequest("s", "u", 10), RecentWaits.none())


class Scripted:
    name = "scripted"
    wants = Wants()

    def __init__(self, act) -> None:
        self._act = act

    def predict(self, observation):
        return self._act()


@pytest.mark.parametrize("budget", [None, 5.0])
@pytest.mark.parametrize("prediction", [WaitForecast.point(500), ActionScores(1, 2), ActionScores(-math.inf, 0)])
def test_a_good_answer_passes(budget, prediction) -> None:
    guard = PredictorGuard(Scripted(lambda: prediction), Reactive(), budget)
    answer = guard.predict(SEEN)
    guard.close()
    assert (answer.prediction, answer.trouble) == (prediction, "")


def fail():
    raise KeyError("weights")


@pytest.mark.parametrize("budget", [None, 5.0])
@pytest.mark.parametrize(
    "act",
    [
        fail,
        lambda: None,
        lambda: WaitForecast.point(math.nan),
        lambda: ActionScores(math.nan, 0),
        lambda: 7,
        lambda: WaitForecast((), ()),
    ],
)
def test_a_bad_answer_is_replaced_and_named(budget, act) -> None:
    guard = PredictorGuard(Scripted(act), Reactive(), budget)
    answer = guard.predict(SEEN)
    guard.close()
    assert answer.prediction == WaitForecast.point(100)
    assert answer.trouble.startswith("no prediction: ")
    assert answer.trouble.endswith("; fell back to reactive")


def test_a_hanging_predictor_costs_one_budget_and_comes_back() -> None:
    gate = threading.Event()
    guard = PredictorGuard(Scripted(lambda: gate.wait(30) and WaitForecast.point(500)), Reactive(), budget=0.1)
    begin = time.monotonic()
    assert "no prediction within 0.1 s" in guard.predict(SEEN).trouble
    for _ in range(20):
        assert "still busy" in guard.predict(SEEN).trouble
    assert time.monotonic() - begin < 5
    gate.set()
    while "still busy" in (answer := guard.predict(SEEN)).trouble:
        time.sleep(0.01)
    assert answer.prediction == WaitForecast.point(500)
    guard.close()


def test_an_answer_says_whose_it_is() -> None:
    good, bad = (
        PredictorGuard(Scripted(lambda: WaitForecast.point(5)), Reactive()),
        PredictorGuard(Scripted(fail), Reactive()),
    )
    assert (good.predict(SEEN).by, bad.predict(SEEN).by) == ("scripted", "reactive")

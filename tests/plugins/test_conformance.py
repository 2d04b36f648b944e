"""The check of predictors: it passes the good ones, and finds each error."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from mirage.domain.decision import ActionScores, Observation, Prediction, WaitForecast, Wants
from mirage.plugin import check_predictor, sample_observation
from mirage.predictors.registry import build_predictor


@pytest.mark.parametrize("name", ["reactive", "fixed:6h", "average", "average:30", "quantile:0.9", "slurm"])
def test_what_is_built_in_holds_to_it(name: str) -> None:
    check_predictor(build_predictor(name))


def test_the_sample_is_the_same_at_every_call_and_leaves_room_to_decide() -> None:
    one, other = sample_observation(8), sample_observation(8)
    assert one.predecessor == other.predecessor
    assert one.predecessor is not None
    assert one.predecessor.end - one.time == 2 * 3_600
    assert (one.window.rows == other.window.rows).all()


class Faulty:
    """Answers well except for one error."""

    name = "faulty"
    wants = Wants(waits=10)

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.calls = 0
        self.pickled = pickle.dumps(OrderedDict())
        if fault == "nameless":
            self.name = ""

    def predict(self, observation: Observation) -> Prediction:
        self.calls += 1
        start = float(observation.time)
        match self.fault:
            case "moody":
                start += self.calls
            case "greedy":
                start = float(max(observation.time, observation.planned_start.start))
            case "meddling":
                observation.waits.wait[0] += 1
            case "pickling":
                pickle.loads(self.pickled)
            case "nan":
                return ActionScores(submit=float("nan"), hold=0.0)
            case "backwards":
                return WaitForecast((0.9, 0.1), (start, start))
            case "descending":
                return WaitForecast((0.1, 0.9), (start + 5, start))
            case "short":
                return WaitForecast((0.1, 0.9), (start,))
            case "beyond":
                return WaitForecast((0.5, 1.5), (start, start))
            case "past":
                start -= 1
            case "stumbling":
                start += float(observation.waits.wait[-1])
            case "mute":
                if not len(observation.waits):
                    raise ValueError
            case "bare":
                return start  # type: ignore[return-value]
        return WaitForecast.point(start)


def test_without_a_fault_it_passes() -> None:
    check_predictor(Faulty(""))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nameless", "name is empty"),
        ("moody", "asked twice"),
        ("greedy", "reads what it does not want"),
        ("meddling", "changed the observation"),
        ("pickling", "unpickled .*OrderedDict"),
        ("nan", "not finite"),
        ("backwards", "do not ascend"),
        ("descending", "starts descend"),
        ("short", "not one start for each level"),
        ("beyond", "not within 0 and 1"),
        ("past", "in the past"),
        ("stumbling", "stumbles: IndexError"),
        ("mute", "without a text"),
        ("bare", "answers float"),
    ],
)
def test_every_fault_is_found(fault: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_predictor(Faulty(fault))


def test_observations_of_ones_own_are_asked_too() -> None:
    usual = sample_observation()
    late = replace(usual, waits=replace(usual.waits, wait=np.zeros_like(usual.waits.wait)))
    check_predictor(build_predictor("average"), [usual, late])

"""Requests to the predictors: answered while the loop waits, one computation for all equal requests."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
from fakes import HOUR, FakeCluster

from mirage.control.clocks import Pace, Pacing, WallClock, WallTicks
from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.prediction_requests import (
    MOST_OF_ONE,
    MOST_WAITING,
    PredictionQueue,
    PredictionRequest,
    PredictionResult,
    Role,
    TooManyPredictionRequests,
)
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import ChainId
from mirage.domain.command import PauseChain
from mirage.domain.decision import ActionScores, Observation, WaitForecast, Wants
from mirage.domain.errors import ClusterUnavailable, MirageError
from mirage.domain.job import ABSENT, NEVER, JobRequest
from mirage.predictors.registry import build_predictor

JOB = JobRequest("probe", "alice", 4 * HOUR, nodes=2)


class Scores:
    """A policy that knows handovers only."""

    name = "dqn"
    wants = Wants()

    def predict(self, observation: object) -> ActionScores:
        return ActionScores(1.0, 2.0)


class Counted:
    """Predicts an hour, and counts how often it is asked."""

    name = "counted"
    wants = Wants(plan=True)

    def __init__(self) -> None:
        self.asked: list[JobRequest] = []

    def predict(self, observation: object) -> WaitForecast:
        self.asked.append(observation.successor)  # type: ignore[attr-defined]
        return WaitForecast.point(observation.time + HOUR)  # type: ignore[attr-defined]


class Six:
    """Predicts six hours."""

    name = "six"
    wants = Wants()

    def predict(self, observation: Observation) -> WaitForecast:
        return WaitForecast.point(observation.time + 6 * HOUR)


def guarded(predictor: object) -> PredictorGuard:
    return PredictorGuard(predictor, build_predictor("reactive"))  # type: ignore[arg-type]


class Asked:
    """A loop on a cluster that has answered one time, and a request queue before it."""

    def __init__(self) -> None:
        self.cluster, self.counted, self.commands = FakeCluster(time=1_000, plan=5_000), Counted(), CommandQueue()
        c = self.cluster
        outside = LoopDependencies(c, c, c, c, c, MemoryStore(), MemoryJournal(), c, self.commands)
        shadows = (guarded(Scores()), guarded(build_predictor("average")))
        self.loop = ControlLoop(outside, Guards(guarded(self.counted), shadows=shadows), LoopSettings())
        self.desk = PredictionQueue(self.commands.nudge)

    def answer(self) -> bool:
        return self.desk.answer(lambda question: self.loop.foresee(question, lambda: None))


@pytest.fixture
def asked() -> Asked:
    made = Asked()
    made.loop.cycle()
    return made


def test_all_in_charge_and_in_shadow_are_asked_and_say_why_not(asked: Asked) -> None:
    promise = asked.desk.ask(PredictionRequest(JOB, guarded(Six())))
    assert asked.answer()
    assert not asked.answer()
    found = promise.result(0)
    assert (found.time, found.stale_since, found.planned_start.start) == (1_000, ABSENT, 5_000)
    assert [(each.predictor, each.role) for each in found.said] == [
        ("counted", Role.IN_CHARGE),
        ("dqn", Role.SHADOW),
        ("average", Role.SHADOW),
        ("six", Role.NAMED),
    ]
    charge, scores, average, named = found.said
    assert charge.forecast == WaitForecast.point(1_000 + HOUR)
    assert scores.forecast is None
    assert "predicts no start" in scores.trouble
    assert average.forecast is None, "another's answer says nothing of it"
    assert "no job has started yet" in average.trouble
    assert named.forecast == WaitForecast.point(1_000 + 6 * HOUR)


def test_rule_is_no_forecast() -> None:
    told = [("fixed:6h", Role.IN_CHARGE, False, True)]
    assert said_by(guarded(build_predictor("fixed:6h"))) == told


class Failing:
    """Never answers."""

    name = "failing"
    wants = Wants()

    def predict(self, observation: object) -> WaitForecast:
        raise TimeoutError("still busy")


def said_by(charge: PredictorGuard, *shadows: PredictorGuard) -> list[tuple[str, Role, bool, bool]]:
    """Name, role, and whether there is a forecast and a trouble, of all that answer."""
    world = Asked()
    world.loop.reconfigure(Guards(charge, shadows=shadows), LoopSettings())
    world.loop.cycle()
    promise = world.desk.ask(PredictionRequest(JOB))
    assert world.answer()
    found = promise.result(0).said
    return [(each.predictor, each.role, each.forecast is not None, bool(each.trouble)) for each in found]


def test_predictor_that_answered_in_place_is_told() -> None:
    charge = PredictorGuard(Failing(), guarded(Six()))
    told = [("failing", Role.IN_CHARGE, False, True), ("six", Role.INSTEAD, True, False)]
    assert said_by(charge) == told
    assert said_by(charge, guarded(Six())) == told
    shadow = PredictorGuard(Failing(), guarded(Six()))
    assert said_by(guarded(Counted()), shadow) == [
        ("counted", Role.IN_CHARGE, True, False),
        ("failing", Role.SHADOW, False, True),
    ]


def test_last_resort_and_scores_are_no_forecast_in_place() -> None:
    nothing = [("failing", Role.IN_CHARGE, False, True)]
    assert said_by(guarded(Failing())) == nothing
    assert said_by(PredictorGuard(Failing(), guarded(Failing()))) == nothing
    assert said_by(PredictorGuard(Failing(), guarded(Scores()))) == nothing


def test_equal_questions_are_asked_once_until_the_world_changes(asked: Asked) -> None:
    first, second = asked.desk.ask(PredictionRequest(JOB)), asked.desk.ask(PredictionRequest(replace(JOB)))
    other = asked.desk.ask(PredictionRequest(replace(JOB, nodes=3)))
    assert first is second
    assert other is not first
    while asked.answer():
        pass
    asked.desk.ask(PredictionRequest(JOB))
    asked.answer()
    assert asked.counted.asked == [JOB, replace(JOB, nodes=3)]
    asked.cluster.advance(2_000)
    asked.loop.cycle()
    again = asked.desk.ask(PredictionRequest(JOB))
    asked.answer()
    assert len(asked.counted.asked) == 3
    assert again.result(0).time == 2_000


def test_before_the_cluster_has_answered_there_is_nothing_to_go_by() -> None:
    never = Asked()
    never.cluster.down = True
    for words in ("has not polled the cluster", "not answered yet"):
        promise = never.desk.ask(PredictionRequest(JOB))
        never.answer()
        with pytest.raises(ClusterUnavailable, match=words):
            promise.result(0)
        never.loop.cycle()


def test_a_question_that_fails_is_its_askers_alone(asked: Asked) -> None:
    promise = asked.desk.ask(PredictionRequest(JOB))

    def fail(question: PredictionRequest) -> PredictionResult:
        raise ZeroDivisionError

    assert asked.desk.answer(fail)
    with pytest.raises(ZeroDivisionError):
        promise.result(0)


def test_questions_are_bounded_and_end_with_the_daemon(asked: Asked) -> None:
    users = [f"user{k % 8}" for k in range(MOST_WAITING)]
    promises = [
        asked.desk.ask(PredictionRequest(replace(JOB, user=user, nodes=k + 1))) for k, user in enumerate(users)
    ]
    with pytest.raises(TooManyPredictionRequests, match=str(MOST_WAITING)):
        asked.desk.ask(PredictionRequest(replace(JOB, user="user3", nodes=999)))  # who has as many as the others
    assert asked.desk.ask(PredictionRequest(replace(JOB, user="user0", nodes=1))) is promises[0]
    asked.desk.close()
    with pytest.raises(MirageError, match="the daemon is stopping"):
        promises[-1].result(0)


def test_one_user_does_not_take_all_places(asked: Asked) -> None:
    for nodes in range(1, MOST_OF_ONE + 1):
        asked.desk.ask(PredictionRequest(replace(JOB, user="mallory", nodes=nodes)))
    with pytest.raises(TooManyPredictionRequests, match="mallory"):
        asked.desk.ask(PredictionRequest(replace(JOB, user="mallory", nodes=999)))
    asked.desk.ask(PredictionRequest(replace(JOB, user="bob")))
    asked.desk.close()


def test_questions_of_few_users_give_way_to_another(asked: Asked) -> None:
    users = [f"user{k}" for k in range(MOST_WAITING // MOST_OF_ONE)]
    promises = [
        asked.desk.ask(PredictionRequest(replace(JOB, user=user, nodes=k + 1)))
        for user in users
        for k in range(MOST_OF_ONE)
    ]
    late = asked.desk.ask(PredictionRequest(replace(JOB, user="bob")))
    with pytest.raises(TooManyPredictionRequests, match="other users"):
        promises[MOST_OF_ONE - 1].result(0)
    assert not any(promise.done() for promise in promises[: MOST_OF_ONE - 1])
    while asked.answer():
        pass
    assert late.done()


def test_a_question_is_answered_while_the_loop_waits_and_brings_no_cycle(asked: Asked) -> None:
    ticks = WallTicks(
        WallClock(), Pace(Pacing(1_000_000), np.random.default_rng(1)), asked.commands, answer=asked.answer
    )
    ended: Future[bool] = Future()
    thread = threading.Thread(target=lambda: ended.set_result(ticks.wait(NEVER, True)))
    thread.start()
    for nodes in (1, 2, 3):
        assert asked.desk.ask(PredictionRequest(replace(JOB, nodes=nodes))).result(60).said
    assert not ended.done(), "it waits on"
    asked.commands.wake()
    assert ended.result(60)
    thread.join()


def test_a_command_put_with_a_question_brings_the_cycle_all_the_same(asked: Asked) -> None:
    ticks = WallTicks(
        WallClock(), Pace(Pacing(1_000_000), np.random.default_rng(1)), asked.commands, answer=asked.answer
    )
    promise = asked.desk.ask(PredictionRequest(JOB))
    asked.commands.wake()
    assert ticks.wait(NEVER, True)
    assert promise.result(0).said


def test_questions_without_end_keep_no_command_waiting(asked: Asked) -> None:
    answered: list[bool] = []

    def one_more() -> bool:
        answered.append(True)
        if len(answered) == 3:
            asked.commands.put(PauseChain(ChainId("svc"), "alice"))
        return True

    ticks = WallTicks(
        WallClock(), Pace(Pacing(1_000_000), np.random.default_rng(1)), asked.commands, answer=one_more
    )
    assert ticks.wait(NEVER, True)
    assert len(answered) == 3
    assert asked.commands.take()

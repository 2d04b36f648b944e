"""Whole runs in compiled code come to the same as asking the policy at every time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from system_cases import cases, cost_table, request_table, unit_system

from mirage.allocation.inference.kernel.scored import KINDS, SETTINGS
from mirage.allocation.inference.registry import request_policy
from mirage.allocation.inference.scores import RequestScores
from mirage.allocation.inference.simulation import SharingRules, SimulatedSystem

if TYPE_CHECKING:
    from mirage.allocation.inference.outcome import RequestRunResult
    from mirage.domain.inference import CostTable, DeviceSet, Dispatch, RequestTable, SystemView
    from mirage.ports import RequestPolicy

NAMES = [
    "fcfs",
    "edf",
    "llf:late-last",
    "sjf",
    "edf:late-last",
    "prema",
    "llf:wait",
    "edf:spare",
    "sjf:late-last+spare",
]

Case = tuple["RequestTable", "DeviceSet", "CostTable"]


class Asked:
    """A policy that is not known to be compiled."""

    def __init__(self, policy: RequestPolicy) -> None:
        self.policy, self.name, self.period = policy, policy.name, policy.period

    def begin(self) -> None:
        self.policy.begin()

    def decide(self, view: SystemView) -> Dispatch:
        return self.policy.decide(view)


class Scored:
    """Scores drawn again each period."""

    name, period = "scored", 1.0
    parameters = np.zeros(len(SETTINGS))

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[int]]] = []

    def begin(self) -> None:
        self.rng = np.random.default_rng(0)

    def decide(self, view: SystemView) -> Dispatch:
        raise AssertionError("its scores are asked for")

    def scores(self, view: SystemView) -> RequestScores:
        count = len(view.request)
        self.seen.append((view.now, view.request.tolist()))
        columns = KINDS + len(view.costs.kinds)
        kept, coming = (self.rng.normal(size=(rows, columns)) for rows in (count, len(view.costs.models)))
        return RequestScores(np.arange(count, dtype=np.int32), kept, coming)


def same(one: RequestRunResult, other: RequestRunResult) -> bool:
    return (
        np.array_equal(one.end, other.end)
        and np.array_equal(one.busy, other.busy)
        and all(np.array_equal(getattr(one.segments, c), getattr(other.segments, c)) for c in ("unit", "begin"))
        and (one.pieces, one.decisions) == (other.pieces, other.decisions)
    )


def with_deadlines(requests: RequestTable) -> RequestTable:
    """Some are soon late; some have the same deadline."""
    allowed = np.array([1.0, 4.0, 16.0, np.inf])[np.arange(len(requests)) * 7 % 4]
    return replace(requests, deadline=np.ceil(requests.arrival / 4.0) * 4.0 + allowed)


@given(case=cases(most_requests=20), name=st.sampled_from(NAMES))
def test_compiled_runs_are_those_of_asking(case: Case, name: str) -> None:
    rules = SharingRules(logged=True, decision_seconds=0.125)
    case = (with_deadlines(case[0]), *case[1:])
    played = SimulatedSystem(*case, rules).play(request_policy(name))
    asked = SimulatedSystem(*case, rules).play(Asked(request_policy(name)))
    assert same(played, asked)
    assert not np.isnan(played.end).any()


@given(case=cases(), delay=st.sampled_from([0.0, 0.25]))
def test_scores_are_asked_for_once_a_period_and_followed(case: Case, delay: float) -> None:
    policy = Scored()
    system = SimulatedSystem(*case, SharingRules(logged=True, decision_seconds=delay))
    outcome = system.play(policy)
    assert not np.isnan(outcome.end).any()
    assert outcome.decisions == len(policy.seen)
    assert all(now == round(now) and ready for now, ready in policy.seen)
    if delay == 0.0:
        assert same(outcome, follow_by_hand(case))


def follow_by_hand(case: Case) -> RequestRunResult:
    policy, system = Scored(), SimulatedSystem(*case, SharingRules(logged=True))
    policy.begin()
    columns = KINDS + len(case[2].kinds)
    coming = np.zeros((len(case[2].models), columns))
    tick, more, empty = 0.0, True, 0
    while more:
        tick += 1.0
        if len(system.view().request):
            scores = policy.scores(system.view())
            coming = scores.coming
            more = system.follow(scores, policy.parameters, tick)
        else:
            none = RequestScores(np.zeros(0, np.int32), np.zeros((0, columns)), coming)
            more, empty = system.follow(none, policy.parameters, tick), empty + 1
    outcome = system.outcome()
    return type(outcome)(**{**vars(outcome), "decisions": outcome.decisions - empty})


@pytest.mark.parametrize("name", ["edf", "prema"])
def test_nothing_is_decided_twice_where_room_is_made(name: str) -> None:
    """Thousands wait, and the log outgrows its room several times."""
    count = 3000
    case = request_table([0.0] * count, [0] * count), unit_system([0, 0]), cost_table([[[1.0], [0.5]]])
    outcome = SimulatedSystem(*case, SharingRules(logged=True)).play(request_policy(name))
    assert outcome.decisions <= outcome.pieces == 2 * count == len(outcome.segments)
    assert outcome.figures.span == 1.5 * count / 2

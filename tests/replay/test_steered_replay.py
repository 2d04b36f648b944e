"""Steered chains in closed loop: what letting a successor age behind its predecessor's nodes is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from small_trace import CLUSTER, DAY, HOUR, plan, trace

from mirage.domain.chain import Steering
from mirage.domain.errors import ConfigError
from mirage.replay.closedloop import replay
from mirage.replay.plan import split_policy

if TYPE_CHECKING:
    from mirage.replay.results import PairOutcome, ReplayResult

POLICIES = ("reactive", "pin", "pin:30m", "hold:10m", "nice:10m")
MINUTE = 60


@pytest.fixture(scope="module")
def result() -> ReplayResult:
    """A cluster that age orders and where limits are enforced: jobs that are held do not grow older."""
    return replay(trace(load=0.95), CLUSTER, plan(*POLICIES, episodes=12))


def of(result: ReplayResult, policy: str) -> list[PairOutcome]:
    return [outcome for outcome in result.outcomes if outcome.policy == policy]


def interruption(result: ReplayResult, policy: str) -> float:
    """The mean, in hours."""
    return float(np.mean([o.interruption for o in of(result, policy)])) / HOUR


def test_every_episode_hands_over_under_every_policy(result: ReplayResult) -> None:
    assert [len(of(result, policy)) for policy in POLICIES] == [12] * len(POLICIES)
    assert interruption(result, "reactive") > 1, "the cluster of this test must be contended"


def test_bound_to_its_predecessors_nodes_a_successor_never_overlaps(result: ReplayResult) -> None:
    assert all(o.overlap == 0 for o in of(result, "pin"))


def test_and_is_hardly_ever_interrupted(result: ReplayResult) -> None:
    pairs = zip(of(result, "pin"), of(result, "reactive"), strict=True)
    assert all(pinned.interruption <= reactive.interruption for pinned, reactive in pairs)
    assert interruption(result, "pin") < 0.1 * interruption(result, "reactive")


def test_it_is_submitted_as_its_predecessor_starts(result: ReplayResult) -> None:
    for policy in POLICIES[1:]:
        for o in of(result, policy):
            assert o.successor_submit == o.predecessor_start


def test_let_go_a_lead_before_the_end_it_overlaps_by_no_more(result: ReplayResult) -> None:
    assert all(o.overlap <= 30 * MINUTE for o in of(result, "pin:30m"))
    assert all(o.overlap <= 10 * MINUTE for o in of(result, "hold:10m"))


def test_nice_is_no_brake(result: ReplayResult) -> None:
    """An idle node takes a niced job: hours of overlap."""
    assert max(o.overlap for o in of(result, "nice:10m")) > HOUR


def test_held_jobs_grow_older_only_where_age_always_accrues(result: ReplayResult) -> None:
    always = replace(CLUSTER, priority=replace(CLUSTER.priority, accrue_always=True))
    aged = replay(trace(load=0.95), always, plan("hold:10m", "pin", episodes=12))
    assert interruption(aged, "hold:10m") < 0.1 * interruption(result, "hold:10m")
    assert interruption(aged, "pin") == interruption(result, "pin")


def test_longer_chains_stay_where_they_are() -> None:
    chains = replay(trace(load=0.95), CLUSTER, plan("pin", episodes=3, links=4, limit=12 * HOUR))
    assert len(chains.outcomes) == 9
    assert all(o.overlap == 0 for o in chains.outcomes)


@pytest.mark.parametrize(
    ("policy", "meant"),
    [
        ("auto", ("auto", Steering.AUTO, 0)),
        ("pin", ("reactive", Steering.PIN, 0)),
        ("hold:10m", ("reactive", Steering.HOLD, 10 * MINUTE)),
        ("nice:1h", ("reactive", Steering.NICE, HOUR)),
        ("fixed:6h", ("fixed:6h", Steering.OFF, 0)),
        ("off", ("off", Steering.OFF, 0)),
    ],
)
def test_a_policy_names_a_predictor_or_a_steering_with_its_lead(
    policy: str, meant: tuple[str, Steering, int]
) -> None:
    assert split_policy(policy) == meant


def test_a_lead_that_is_no_time_is_refused_before_anything_is_played() -> None:
    with pytest.raises(ConfigError, match="pin:soon"):
        replay(trace(), CLUSTER, plan("reactive", "pin:soon", start=1_000_000 + DAY, end=1_000_000 + DAY))

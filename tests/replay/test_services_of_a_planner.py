"""Replays of links on shared nodes, of one writer, and of a user of the trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_trace import CLUSTER, DAY, HOUR, NODES, plan, trace

from mirage.domain.errors import ConfigError, SubmissionRejected
from mirage.predictors.auto import Auto
from mirage.replay.closedloop import replay
from mirage.replay.episodes import policy_predictor
from mirage.simulator.cluster import Partition

SHARED = replace(CLUSTER, partitions=(Partition("batch", NODES, max_time=2 * DAY, default=True),))
HALF = {"nodes": 1, "cpus": 2}
"""Of a node of four CPUs."""


def test_links_of_half_a_node_are_not_pinned_and_share_their_nodes() -> None:
    result = replay(trace(load=0.4), SHARED, plan("reactive", "auto", "pin", episodes=4, **HALF))
    chosen = {policy: [o for o in result.outcomes if o.policy == policy] for policy in result.policies}
    assert all(len(outcomes) == 4 for outcomes in chosen.values())
    assert all(o.successor_submit > o.predecessor_start for o in chosen["auto"])


def test_links_of_more_cpus_than_a_node_has_are_rejected() -> None:
    with pytest.raises(SubmissionRejected, match="BadConstraints"):
        replay(trace(), SHARED, plan("reactive", episodes=1, nodes=1, cpus=5))


@pytest.mark.parametrize("policy", ["auto", "fixed:6h", "quantile", "pin", "hold:10m", "nice:10m"])
def test_of_one_writer_no_two_links_run_together(policy: str) -> None:
    both = replay(trace(load=0.6), CLUSTER, plan(policy, episodes=6))
    alone = replay(trace(load=0.6), CLUSTER, plan(policy, episodes=6, one_writer=True))
    assert all(o.overlap == 0 for o in alone.outcomes)
    assert len(alone.outcomes) == 6
    if policy == "fixed:6h":
        assert any(o.overlap > 0 for o in both.outcomes), "this test needs a policy that overlaps where it may"


def test_a_user_of_the_trace_has_the_share_that_their_jobs_left() -> None:
    """Where fair share decides alone, the heaviest user waits longer than one who never ran a job."""
    jobs = trace(load=0.95)
    heavy = replace(
        jobs, user=type(jobs.user).encode(["heavy" if k % 2 else f"u{k % 20}" for k in range(len(jobs))])
    )
    priority = replace(CLUSTER.priority, age=1, fair_share=100_000)
    cluster = replace(CLUSTER, priority=priority)
    waits = {}
    for user in ("heavy", "mirage-service"):
        outcomes = replay(heavy, cluster, plan("reactive", episodes=8, user=user)).outcomes
        waits[user] = sum(o.interruption for o in outcomes) / HOUR
    assert waits["heavy"] > waits["mirage-service"]


def test_an_unknown_user_is_told() -> None:
    with pytest.raises(ConfigError, match="--user"):
        plan("reactive", user="nosuch").check(trace())


def test_auto_knows_the_cluster_as_a_daemon_does() -> None:
    built = policy_predictor("auto", plan("auto"), None, CLUSTER)
    assert isinstance(built, Auto)
    assert built.wants.history > 0
    shares = replace(CLUSTER, priority=replace(CLUSTER.priority, age=1, fair_share=1_000))
    assert policy_predictor("auto", plan("auto"), None, shares).wants.history == 0

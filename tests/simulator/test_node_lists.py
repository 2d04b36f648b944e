"""Jobs bound to nodes (``--nodelist``): when they start, what they prevent for others, and what changes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_clusters import (
    HOUR,
    NO_BACKFILL,
    PROMPT,
    T0,
    after,
    ask,
    cluster,
    node_names,
    partition,
    priority,
    simulate,
    start,
    weights,
)

from mirage.domain.errors import SubmissionRejected, UnknownJob
from mirage.domain.job import JobState
from mirage.simulator.cluster import NodeGroup, Reservation

if TYPE_CHECKING:
    from mirage.domain.job import JobId
    from mirage.simulator.simulation import Simulation

MINUTE, DAY = 60, 86_400
AGE = weights(age=DAY // MINUTE, max_age=DAY, calc_period=MINUTE)
"""A priority is the age in minutes."""


def beside_idle_node(**changes: object) -> tuple[Simulation, JobId, JobId]:
    """Two nodes; a job of two hours on n0, and one bound to n0 behind it: simulation, predecessor, successor."""
    sim = simulate(cluster(nodes=2, priority=AGE, **changes))
    before = sim.submit(ask(limit=2 * HOUR), 2 * HOUR)
    after(sim, 0)
    assert sim.allocation(before) == ("n0",)
    return sim, before, sim.submit(ask(node_list="n0"), HOUR)


# When it starts


def test_it_waits_for_its_nodes_beside_idle_ones_and_starts_with_their_release() -> None:
    sim, before, job = beside_idle_node()
    assert sim.job(after(sim, 2 * HOUR - 1) and job).reason == "Resources"
    assert sim.planned_starts()[job] == sim.job(before).end
    after(sim, 2 * HOUR)
    assert start(sim, job) == 2 * HOUR
    assert sim.allocation(job) == ("n0",)


def test_it_starts_in_the_second_in_which_its_predecessor_ends_early() -> None:
    sim, before, job = beside_idle_node()
    after(sim, 1234)
    sim.cancel(before)
    after(sim, 1234)
    assert (start(sim, job), sim.allocation(job)) == (1234, ("n0",))


def test_it_ages_while_it_waits() -> None:
    sim, _, job = beside_idle_node()
    assert priority(after(sim, 90 * MINUTE), job) == 90
    pending, _ = sim.columns()
    assert pending.eligible.tolist() == [T0]


def test_the_hand_over_of_the_testbed() -> None:
    """slurm-testbed/experiments/pinned.py on a real slurmctld: two nodes, two jobs before the bound one, ten
    behind it. It started at its predecessor's limit; a job submitted then was planned five hours later.
    """
    sim = simulate(cluster(nodes=2, priority=AGE))
    before = sim.submit(ask(limit=2 * HOUR), 2 * HOUR)
    nodes = sim.job(after(sim, 0) and before).node_list
    crowd = [sim.submit(ask("bob"), HOUR) for _ in range(2)]
    job = sim.submit(ask(node_list=nodes), HOUR)
    crowd += [sim.submit(ask("bob"), HOUR) for _ in range(10)]
    after(sim, 2 * HOUR - 600)
    assert sim.planned_starts()[job] == T0 + 2 * HOUR
    after(sim, 2 * HOUR)
    fresh = sim.submit(ask("carol"), HOUR)
    assert (start(sim, job), sim.job(job).node_list) == (2 * HOUR, nodes)
    assert sim.planned_starts()[fresh] == T0 + 7 * HOUR


def test_where_nodes_are_shared_it_runs_beside_its_predecessor_if_there_is_room() -> None:
    """Why steering wants whole nodes."""
    sim = simulate(cluster(nodes=2, exclusive=False))
    sim.submit(ask(limit=2 * HOUR, cpus_per_node=3), 2 * HOUR)
    after(sim, 0)
    narrow = sim.submit(ask(node_list="n0", cpus_per_node=1), 3 * HOUR)
    wide = sim.submit(ask(node_list="n0", cpus_per_node=3), HOUR)
    after(sim, 2 * HOUR)
    assert (start(sim, narrow), start(sim, wide)) == (0, 2 * HOUR)
    assert sim.allocation(wide) == ("n0",)


def test_nodes_that_it_does_not_list_are_chosen_as_usual() -> None:
    sim = simulate(cluster(nodes=5))
    sim.submit(ask(limit=HOUR), HOUR)
    job = sim.submit(ask(nodes=3, node_list="n3"), HOUR)
    after(sim, 0)
    assert (start(sim, job), sim.job(job).node_list) == (0, "n[1-3]")


def test_of_a_list_all_nodes_must_be_free_at_once() -> None:
    sim = simulate(cluster(nodes=4))
    for hours in (3, 1, 2):
        sim.submit(ask(limit=hours * HOUR), hours * HOUR)
    after(sim, 0)
    pair, three = (
        sim.submit(ask(nodes=2, node_list="n[1,2]"), HOUR),
        sim.submit(ask(nodes=3, node_list="n0"), HOUR),
    )
    assert sim.planned_starts() == {pair: T0 + 2 * HOUR, three: T0 + 3 * HOUR}
    after(sim, 3 * HOUR)
    assert (start(sim, pair), start(sim, three)) == (2 * HOUR, 3 * HOUR)


def test_an_advance_reservation_of_its_nodes_is_waited_for() -> None:
    sim, _, job = beside_idle_node()
    sim.reserve(Reservation("service", T0 + HOUR, T0 + 5 * HOUR, ("n0",), users=("vip",)))
    assert sim.planned_starts()[job] == T0 + 5 * HOUR
    after(sim, 5 * HOUR)
    assert start(sim, job) == 5 * HOUR


# What it prevents for others


def test_the_main_loop_keeps_its_nodes_and_no_others() -> None:
    """A job that does not fit closes its partition; one that lists all its nodes only closes these."""
    sim = simulate(cluster(nodes=3, scheduler=NO_BACKFILL))
    sim.submit(ask(limit=2 * HOUR), 2 * HOUR)
    bound = sim.submit(ask(nodes=2, node_list="n[0-1]"), HOUR)
    short, other = (sim.submit(ask(), HOUR) for _ in range(2))
    after(sim, HOUR - 1)
    assert (sim.allocation(short), start(sim, other), start(sim, bound)) == (("n2",), -1, -1)


def test_backfill_takes_its_nodes_only_for_what_ends_before() -> None:
    sim = simulate(cluster(nodes=2, scheduler=PROMPT))
    sim.submit(ask(limit=2 * HOUR), 2 * HOUR)
    bound = sim.submit(ask(nodes=2, node_list="n[0-1]"), HOUR)
    long, short = sim.submit(ask(limit=3 * HOUR), 3 * HOUR), sim.submit(ask(limit=HOUR), HOUR)
    after(sim, 4 * HOUR)
    assert start(sim, bound) == 2 * HOUR
    assert 0 <= start(sim, short) <= 30
    assert start(sim, long) == 3 * HOUR


def test_that_its_nodes_are_taken_does_not_end_the_search_for_others() -> None:
    """Backfill skips jobs like one that could not start; the nodes are part of the likeness."""
    sim = simulate(cluster(nodes=2))
    sim.submit(ask(limit=2 * HOUR), 2 * HOUR)
    after(sim, 0)
    sim.submit(ask("bob", nodes=2), HOUR)
    sim.submit(ask(node_list="n0", limit=MINUTE), MINUTE)
    free = sim.submit(ask(limit=HOUR), HOUR)
    after(sim, MINUTE)
    assert 0 <= start(sim, free) <= 30


# What changes it


def test_cleared_it_starts_elsewhere_at_once() -> None:
    sim, _, job = beside_idle_node()
    after(sim, 600)
    sim.set_node_list(job, "")
    assert sim.job(job).node_list == ""
    after(sim, 600)
    assert (start(sim, job), sim.job(job).node_list) == (600, "n1")


def test_a_pending_job_can_be_bound() -> None:
    sim, _, first = beside_idle_node()
    second = sim.submit(ask("bob", begin=T0 + 60), HOUR)
    sim.set_node_list(second, "n0")
    assert sim.job(second).node_list == "n0"
    after(sim, 3 * HOUR)
    assert [start(sim, job) for job in (first, second)] == [2 * HOUR, 3 * HOUR]


def test_a_change_counts_the_age_until_now_and_leaves_it() -> None:
    slow = weights(age=DAY // MINUTE, max_age=DAY, calc_period=HOUR)
    sim = simulate(cluster(nodes=1, priority=slow))
    sim.submit(ask(limit=DAY), DAY)
    alone, bound = sim.submit(ask(), HOUR), sim.submit(ask(node_list="n0"), HOUR)
    after(sim, 90 * MINUTE)
    sim.set_node_list(bound, "")
    assert (T0 + 80 * MINUTE) % HOUR == 0, "when the last period began"
    assert (priority(sim, alone), priority(sim, bound)) == (80, 90)


@pytest.mark.parametrize("state", ["down", "drain"])
def test_a_node_that_goes_away_keeps_it_waiting_until_it_is_back(state: str) -> None:
    sim, _, job = beside_idle_node()
    after(sim, HOUR)
    sim.set_nodes(("n0",), state)
    after(sim, 4 * HOUR)
    assert sim.job(job).reason == "ReqNodeNotAvail, UnavailableNodes:n0"
    assert job not in sim.planned_starts()
    sim.set_nodes(("n0",), "resume")
    after(sim, 4 * HOUR)
    assert (start(sim, job), sim.allocation(job)) == (4 * HOUR, ("n0",))


def test_requeued_it_is_bound_as_before() -> None:
    sim = simulate(cluster(nodes=2))
    job = sim.submit(ask(node_list="n1"), HOUR)
    after(sim, 60)
    sim.set_nodes(("n1",), "down")
    after(sim, HOUR)
    assert (sim.job(job).state, sim.job(job).node_list) == (JobState.PENDING, "n1")
    sim.set_nodes(("n1",), "resume")
    after(sim, HOUR)
    assert sim.allocation(job) == ("n1",)


def test_nothing_changes_once_it_runs_and_trace_jobs_cannot_be_bound() -> None:
    sim, before, _ = beside_idle_node()
    sim.set_node_list(before, "n1")
    assert sim.job(before).node_list == "n0"
    with pytest.raises(UnknownJob, match="not submitted here"):
        sim.set_node_list(10_000, "n0")


# What is rejected


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("n9", "Invalid node name specified: there is no node n9"),
        ("n[0-", "Invalid node name specified"),
        ("n[0-2]", "Requested node configuration is not available: n2"),
        ("n[0-1]", "Node count specification invalid: 2 nodes listed, 1 asked"),
        ("s0", r"Requested nodes not in this partition \(main\): s0"),
        ("n2", "Requested node configuration is not available: n2"),
    ],
)
def test_a_list_that_cannot_be_is_refused_and_changes_nothing(nodes: str, words: str) -> None:
    groups = (NodeGroup(("n0", "n1"), cpus=4), NodeGroup(("n2",), cpus=2), NodeGroup(("s0",), cpus=4))
    parts = (partition("main", ("n0", "n1", "n2")), partition("spare", ("s0",)))
    sim = simulate(replace(cluster(), nodes=groups, partitions=parts))
    request = ask(cpus_per_node=3, begin=T0 + HOUR)
    with pytest.raises(SubmissionRejected, match=words):
        sim.submit(ask(cpus_per_node=3, node_list=nodes), HOUR)
    job = sim.submit(request, HOUR)
    sim.set_node_list(job, "n1")
    with pytest.raises(SubmissionRejected, match=words):
        sim.set_node_list(job, nodes)
    after(sim, HOUR)
    assert sim.job(job).node_list == "n1"


# Copies and what-if runs


def test_a_copy_keeps_the_list_and_goes_its_own_way() -> None:
    sim, _, job = beside_idle_node()
    twin, freed = sim.copy(), sim.copy()
    freed.set_node_list(job, "")
    assert [start(after(world, 3 * HOUR), job) for world in (twin, freed, sim)] == [2 * HOUR, 0, 2 * HOUR]


def test_what_if_runs_and_estimates_agree_with_what_happens() -> None:
    sim, _, _ = beside_idle_node()
    bound = ask("carol", node_list="n0")
    assert sim.estimate_start(bound) == T0 + 3 * HOUR
    times = T0 + np.arange(0, 5 * HOUR, 30 * MINUTE)
    played = []
    for time in times.tolist():
        world = sim.copy()
        world.run_until(time)
        job = world.submit(bound, HOUR)
        world.run_until(time + DAY)
        played.append(world.job(job).start)
    assert sim.start_times(bound, HOUR, times).tolist() == played
    assert set(played[:6]) == {T0 + 3 * HOUR}


def test_tables_grow_with_the_lists_in_them() -> None:
    """A hundred nodes, so that a set needs more than one word; more jobs than the first tables hold."""
    sim = simulate(cluster(nodes=100))
    world, jobs = sim, []
    for number in range(100):
        jobs.append(world.submit(ask(node_list=f"n{99 - number}"), HOUR))
        world = world.copy()
        world.start_times(ask(node_list="n0"), HOUR, np.array([T0]))
    after(world, 0)
    assert [world.allocation(job) for job in jobs] == [(f"n{99 - number}",) for number in range(100)]
    after(world, HOUR)
    assert [world.job(job).node_list for job in jobs] == [f"n{99 - number}" for number in range(100)]


# Against a slow reference


@dataclass
class Bound:
    """A job that lists all its nodes."""

    nodes: frozenset[str]
    submit: int
    runtime: int
    start: int = -1

    def holds(self, now: int) -> bool:
        return 0 <= self.start <= now < self.start + self.runtime


def plain_starts(jobs: list[Bound]) -> list[int]:
    """In order of submission, each second: a job starts when no job before it runs on or waits for its nodes."""
    now = 0
    while any(job.start < 0 for job in jobs):
        wanted: set[str] = set()
        for job in jobs:
            if job.submit <= now and job.start < 0:
                taken = wanted.union(*(other.nodes for other in jobs if other.holds(now)))
                if not job.nodes & taken:
                    job.start = now
                wanted |= job.nodes
        now += 1
    return [job.start for job in jobs]


bound_jobs = st.builds(
    Bound,
    st.frozensets(st.sampled_from(node_names(4)), min_size=1, max_size=3),
    st.integers(0, 60),
    st.integers(1, 40),
)


@settings(max_examples=40, deadline=None)
@given(drawn=st.lists(bound_jobs, min_size=1, max_size=12))
def test_the_main_loop_against_a_slow_one(drawn: list[Bound]) -> None:
    jobs = sorted(drawn, key=lambda job: job.submit)
    sim = simulate(cluster(nodes=4, scheduler=NO_BACKFILL))
    ids = []
    for job in jobs:
        sim.run_until(T0 + job.submit)
        ids.append(sim.submit(ask(nodes=len(job.nodes), node_list=",".join(job.nodes)), job.runtime))
    after(sim, HOUR)
    assert [start(sim, number) for number in ids] == plain_starts(jobs)


@settings(max_examples=40, deadline=None)
@given(drawn=st.lists(bound_jobs.filter(lambda job: len(job.nodes) == 1), min_size=1, max_size=12))
def test_backfill_with_one_list_a_node_is_a_queue_for_each_node(drawn: list[Bound]) -> None:
    """Whatever the others' limits are, no job can pass on a node of the same queue."""
    jobs = sorted(drawn, key=lambda job: job.submit)
    sim = simulate(cluster(nodes=4))
    ids = []
    for job in jobs:
        sim.run_until(T0 + job.submit)
        ids.append(sim.submit(ask(limit=job.runtime, node_list=min(job.nodes)), job.runtime))
    after(sim, HOUR)
    assert [start(sim, number) for number in ids] == plain_starts(jobs)

"""Whole random workloads: repeatable, complete, the same from a trace, and fair to the head of the queue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_clusters import PROMPT, T0, ask, cluster

from mirage.domain.job import JobRequest, JobState
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.simulator.cluster import Association, ClusterConfig, PriorityWeights, Scheduling
from mirage.simulator.run import simulate
from mirage.simulator.simulation import Simulation

CPUS = 4
USERS = ("ann", "bob", "cat")


def workload(seed: int, count: int) -> list[tuple[int, JobRequest, int]]:
    """(submit, request, run time) of random whole-node jobs: one at a time, none on a backfill tick."""
    random = np.random.default_rng(seed)
    at = T0
    jobs = []
    for _ in range(count):
        at += int(random.integers(1, 120))
        at += at % PROMPT.bf_interval == 0
        limit = int(random.integers(1, 20)) * 120
        user = str(random.choice(USERS))
        asked = ask(user, int(random.integers(1, 7)), limit, account="a", cpus_per_node=CPUS)
        jobs.append((at, asked, int(random.integers(1, limit + 1))))
    return jobs


def run(config: ClusterConfig, jobs: list[tuple[int, JobRequest, int]]) -> Simulation:
    sim = Simulation(config, start=T0, log=True)
    for at, request, runtime in jobs:
        sim.run_until(at)
        sim.submit(request, runtime)
    sim.run()
    sim.check()
    return sim


SIX_NODES = cluster(
    nodes=6,
    priority=PriorityWeights(age=1000, job_size=300, fair_share=500),
    associations=(Association("a"), *(Association("a", user) for user in USERS)),
)
"""With every user known from the beginning: in a trace they are, and fair share counts them."""


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_same_asks_give_the_same_events(seed: int) -> None:
    jobs = workload(seed, 40)
    assert run(SIX_NODES, jobs).events().tolist() == run(SIX_NODES, jobs).events().tolist()


def as_table(jobs: list[tuple[int, JobRequest, int]]) -> JobTable:
    """The same jobs as a trace recorded them; what the recorded starts were does not matter."""
    submit, runtime = np.array([job[0] for job in jobs]), np.array([job[2] for job in jobs])
    nodes = np.array([job[1].nodes for job in jobs], dtype=np.int32)
    return job_table(
        len(jobs),
        submit=submit,
        start=submit,
        end=submit + runtime,
        limit=np.array([job[1].limit for job in jobs]),
        nodes=nodes,
        cpus=nodes * CPUS,
        user=Names.encode([job[1].user for job in jobs]),
        account=Names.encode([job[1].account for job in jobs]),
        state=np.full(len(jobs), JobState.COMPLETED, dtype=np.int8),
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_trace_is_scheduled_as_the_same_submissions_are(seed: int) -> None:
    jobs = workload(seed, 40)
    by_hand = run(SIX_NODES, jobs)
    # Where a job arrives as another ends, one look at the queue sees both in a trace, and two manually
    # (no job arrives as backfill is due, for the same reason).
    assume({job.end for job in by_hand.jobs()}.isdisjoint(at for at, _, _ in jobs))
    replayed = Simulation(SIX_NODES, as_table(jobs), start=T0)
    replayed.run()
    replayed.check()
    got = replayed.schedule()
    assert got["start"].tolist() == [job.start for job in by_hand.jobs()]
    assert got["end"].tolist() == [job.end for job in by_hand.jobs()]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_job_ends_when_nothing_stands_in_its_way(seed: int) -> None:
    sim = run(SIX_NODES, workload(seed, 40))
    pending, running = sim.columns()
    assert (len(pending), len(running)) == (0, 0)


COARSENESS = 60
"""Two groups of running jobs that end within the planner's first 30 s."""


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_backfill_never_delays_the_top_job(seed: int) -> None:
    """The first plan made for the job at the head of the queue is kept, as far as Slurm promises it.

    Slurm promises it where no later job overtakes the head (no weights: first in, first out), nodes are whole
    and alike, limits bound run times, and up to what it rounds: the planner looks at the running jobs in groups
    that end close together (30 s, doubling), reservations lie on a grid of ``bf_resolution``, and a cycle comes
    every ``bf_interval``. So the plan is a bound up to those.
    """
    fine = replace(PROMPT, bf_resolution=1, bf_window_linear=1, bf_window=10 * 86_400)
    sim = Simulation(cluster(nodes=6, scheduler=fine), start=T0)
    arrivals = workload(seed, 30)
    ids: list[int] = []
    promised: dict[int, int] = {}
    while arrivals or len(sim.columns()[0]):
        until = int(sim.now) + fine.bf_interval
        while arrivals and arrivals[0][0] <= until:
            at, request, runtime = arrivals.pop(0)
            sim.run_until(at)
            ids.append(int(sim.submit(request, runtime)))
        sim.run_until(until)
        waiting = sorted(sim.columns()[0].job_id.tolist())
        if waiting and waiting[0] not in promised:
            plan = sim.job(waiting[0]).expected_start
            if plan >= T0:
                promised[waiting[0]] = int(plan)
    for number, plan in promised.items():
        assert sim.job(number).start <= plan + fine.bf_interval + COARSENESS, (number, plan)


@pytest.mark.parametrize("known", ["nodes", "cpus", "both"])
@pytest.mark.parametrize("exclusive", [True, False])
def test_utilisation_is_that_of_what_is_allocated_whatever_the_trace_knows(known: str, exclusive: bool) -> None:
    """A trace in the standard workload format has CPUs and no nodes, others nodes alone."""
    jobs = workload(7, 60)
    table = as_table(jobs)
    nothing = np.zeros_like(table.nodes)
    table = replace(
        table,
        nodes=nothing if known == "cpus" else table.nodes,
        cpus=nothing if known == "nodes" else table.cpus,
    )
    whole = replace(SIX_NODES.partitions[0], exclusive=exclusive)
    found = simulate(table, replace(SIX_NODES, partitions=(whole,)), Scheduling.SLURM)
    ran = found.table.end - found.table.start
    cpus = 1 if known == "nodes" and not exclusive else CPUS
    held = sum(int(seconds) * request.nodes * cpus for seconds, (_, request, _) in zip(ran, jobs, strict=True))
    span = int(found.table.end.max() - found.table.submit.min())
    assert found.figures.utilisation == pytest.approx(held / (6 * CPUS * span))

"""The main loop against a plain controller that looks at the queue every second, on random small cases."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from reference_slurm import NOT_YET, PlainController, PlainJob
from small_clusters import T0, ask, cluster, node_names, partition, simulate, weights

from mirage.domain.job import Dependency, DependencyKind, JobId, JobState
from mirage.simulator.cluster import Association, ClusterConfig, NodeGroup, SchedulerParameters

EVERY_SECOND = SchedulerParameters(
    backfill=False, batch_sched_delay=0, sched_interval=1, default_queue_depth=10_000
)
ISLANDS = {"main": "big", "urgent": "big", "small": "small"}
TIERS = {"main": 1, "urgent": 5, "small": 1}
SIZES = {"big": 4, "small": 2}
FACTORS = {"main": 10, "urgent": 20, "small": 40}
WEIGHT = 4000
HORIZON = 1500
KINDS = list(DependencyKind)


def two_islands(max_jobs: int) -> ClusterConfig:
    """Four nodes under two partitions of different tiers, two more under a third; no backfill."""
    big, small = node_names(SIZES["big"], "b"), node_names(SIZES["small"], "s")
    return replace(
        cluster(scheduler=EVERY_SECOND, priority=weights(partition=WEIGHT)),
        nodes=(NodeGroup(names=big, cpus=2), NodeGroup(names=small, cpus=2)),
        partitions=tuple(
            partition(
                name,
                big if island == "big" else small,
                priority_tier=TIERS[name],
                priority_job_factor=FACTORS[name],
            )
            for name, island in ISLANDS.items()
        ),
        default_association=Association(account="", max_jobs=max_jobs),
    )


@dataclass(frozen=True)
class Arrival:
    gap: int
    partition: str
    nodes: int
    user: str
    runtime: int
    limit: int
    nice: int
    begin: int
    held: bool
    outcome: JobState
    depends: tuple[DependencyKind, int, int] | None
    """Kind, how many jobs back, delay in seconds."""


arrivals = st.builds(
    Arrival,
    gap=st.integers(0, 40),
    partition=st.sampled_from(sorted(ISLANDS)),
    nodes=st.integers(1, 4),
    user=st.sampled_from(["ann", "bob"]),
    runtime=st.integers(1, 90),
    limit=st.sampled_from([30, 60, 120]),
    nice=st.integers(-30, 30),
    begin=st.one_of(st.just(0), st.integers(0, 200)),
    held=st.sampled_from([False, False, False, True]),
    outcome=st.sampled_from([JobState.COMPLETED, JobState.FAILED]),
    depends=st.one_of(
        st.none(),
        st.tuples(st.sampled_from(KINDS), st.integers(1, 4), st.integers(1, 60)),
    ),
)


def dependencies(arrival: Arrival, ids: list[int]) -> tuple[Dependency, ...]:
    if arrival.depends is None:
        return ()
    kind, back, delay = arrival.depends
    if kind is DependencyKind.SINGLETON:
        return (Dependency(kind),)
    if back > len(ids):
        return ()
    return (Dependency(kind, JobId(ids[-back]), delay if kind is DependencyKind.AFTER else 0),)


def nodes_of(arrival: Arrival) -> int:
    return min(arrival.nodes, SIZES[ISLANDS[arrival.partition]])


@settings(max_examples=60, deadline=None)
@given(
    drawn=st.lists(arrivals, max_size=14),
    max_jobs=st.sampled_from([-1, 1, 2]),
    releases=st.lists(st.integers(0, 13), max_size=4),
)
def test_main_loop_equals_the_plain_controller(drawn: list[Arrival], max_jobs: int, releases: list[int]) -> None:
    plain = PlainController(free=dict(SIZES), most_running=max_jobs, now=T0)
    sim = simulate(two_islands(max_jobs))
    ids: list[int] = []
    now = T0
    for arrival in drawn:
        now += arrival.gap
        plain.run_until(now)
        sim.run_until(now)
        wanted = dependencies(arrival, ids)
        begin = T0 + arrival.begin if arrival.begin else 0
        request = ask(
            user=arrival.user,
            nodes=nodes_of(arrival),
            limit=arrival.limit,
            partition=arrival.partition,
            nice=arrival.nice,
            begin=begin,
            held=arrival.held,
            dependencies=wanted,
        )
        number = int(sim.submit(request, arrival.runtime, arrival.outcome))
        ids.append(number)
        island = ISLANDS[arrival.partition]
        plain.submit(
            PlainJob(
                number=number,
                island=island,
                partition=arrival.partition,
                tier=TIERS[arrival.partition],
                priority=WEIGHT * FACTORS[arrival.partition] // max(FACTORS.values()) - arrival.nice,
                user=arrival.user,
                nodes=nodes_of(arrival),
                runtime=arrival.runtime,
                limit=arrival.limit,
                submit=now,
                begin=begin,
                held=arrival.held,
                dependencies=wanted,
                outcome=arrival.outcome,
            )
        )
    for place in releases:
        if place < len(ids):
            now += 20
            plain.run_until(now)
            sim.run_until(now)
            sim.release(ids[place])
            plain.jobs[place].held = False
    plain.run_until(T0 + HORIZON)
    sim.run_until(T0 + HORIZON)
    sim.check()
    for job in plain.jobs:
        got = sim.job(job.number)
        expected = (job.state, job.start if job.start != NOT_YET else -1)
        assert (got.state, got.start) == expected, (job, got)

"""Main loop, backfill and resources by slurm.conf(5) and the comments of slurmctld's own loop."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
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
    simulate,
    start,
    weights,
)

from mirage.domain.errors import SubmissionRejected
from mirage.domain.job import JobState
from mirage.simulator.cluster import Association, NodeGroup, Qos

SOON = range(PROMPT.bf_interval + 1)
"""Starts made by the first backfill cycle."""

FOUR = node_names(4)


def test_the_loop_closes_a_partition_at_its_first_job_that_does_not_fit() -> None:
    """Another partition, of other nodes, continues."""
    nodes = node_names(5)
    config = cluster(
        nodes=5,
        scheduler=NO_BACKFILL,
        partitions=(partition("main", nodes[:4]), partition("other", nodes[4:])),
    )
    sim = simulate(config)
    sim.submit(ask(nodes=3, limit=1000), 1000)
    wide = sim.submit(ask(nodes=2, limit=1000), 1000)
    narrow = sim.submit(ask(nodes=1, limit=100), 100)
    elsewhere = sim.submit(ask(partition="other"), 100)
    after(sim, 5000)
    assert [start(sim, job) for job in (wide, narrow, elsewhere)] == [1000, 1000, 0]


def test_a_job_that_does_not_fit_takes_its_partitions_nodes_out_of_the_pass() -> None:
    """job_scheduler.c: "do not schedule more jobs in this partition or on nodes in this partition"."""
    config = cluster(
        scheduler=NO_BACKFILL,
        partitions=(partition("main", FOUR), partition("same", FOUR)),
        priority=weights(partition=1000),
    )
    sim = simulate(config)
    sim.submit(ask(nodes=3, limit=1000), 1000)
    sim.submit(ask(nodes=2, limit=1000), 1000)
    same_nodes = sim.submit(ask(partition="same", limit=100), 100)
    assert start(after(sim, 5000), same_nodes) == 1000


def test_a_higher_tier_goes_first_whatever_the_priority() -> None:
    """PriorityTier: jobs of a higher tier are evaluated before all of a lower one."""
    config = cluster(
        scheduler=NO_BACKFILL,
        partitions=(partition("main", FOUR), partition("urgent", FOUR, priority_tier=2)),
    )
    sim = simulate(config)
    sim.submit(ask(nodes=4, limit=100), 100)
    after(sim, 0)
    low = sim.submit(ask(nodes=4, limit=100, nice=-10_000), 100)
    high = sim.submit(ask(nodes=4, limit=100, partition="urgent", nice=10_000), 100)
    after(sim, 1000)
    assert (start(sim, high), start(sim, low)) == (100, 200)


def test_the_quick_loop_tests_default_queue_depth_jobs() -> None:
    """Deeper jobs wait for the loop of every sched_interval, which ignores the depth."""
    depth = replace(NO_BACKFILL, default_queue_depth=2, sched_interval=60)
    one_job = (
        Association(account="a"),
        Association(account="a", user="ann", max_jobs=1),
        Association(account="a", user="bob"),
    )
    sim = simulate(cluster(scheduler=depth, associations=one_job))
    after(sim, 10)
    for _ in range(8):
        sim.submit(ask(account="a"), HOUR)
    deep = sim.submit(ask(user="bob", account="a"), HOUR)
    assert 10 < start(after(sim, 200), deep) <= 10 + 60


def blocked_head(**scheduler: int | bool) -> tuple[object, ...]:
    """Three of four nodes busy for 1000 s, then a job of four that must wait; the simulation and that job."""
    config = cluster(
        scheduler=replace(PROMPT, **scheduler),  # type: ignore[arg-type]
        partitions=(partition("main", FOUR), partition("second", FOUR)),
    )
    sim = simulate(config)
    sim.submit(ask(user="zoe", nodes=3, limit=1000), 1000)
    return sim, sim.submit(ask(user="ann", nodes=4, limit=1000), 1000)


def test_backfill_starts_what_ends_before_the_reservation() -> None:
    sim, head = blocked_head()
    short = sim.submit(ask(limit=600), 600)
    long = sim.submit(ask(limit=5000), 5000)
    after(sim, 9000)
    assert start(sim, short) in SOON
    assert start(sim, head) == 1000
    assert start(sim, long) >= 2000


def test_backfill_plans_with_limits_not_run_times() -> None:
    sim, head = blocked_head()
    pessimist = sim.submit(ask(limit=5000), 10)
    after(sim, 9000)
    assert start(sim, head) == 1000
    assert start(sim, pessimist) >= 2000


def test_a_reservation_beyond_the_window_is_not_made() -> None:
    """bf_window: "at least as long as the highest allowed time limit is advisable to prevent starvation"."""
    sim, head = blocked_head(bf_window=600)
    long = sim.submit(ask(limit=5000), 5000)
    after(sim, 9000)
    assert start(sim, long) in SOON
    assert start(sim, head) >= 5000


def test_bf_max_job_test_ends_the_cycle() -> None:
    sim, head = blocked_head(bf_max_job_test=1)
    short = sim.submit(ask(user="bob", limit=600), 600)
    after(sim, 9000)
    assert start(sim, head) == 1000
    assert start(sim, short) >= 1000


def test_bf_max_job_user_passes_over_the_users_later_jobs() -> None:
    sim, _ = blocked_head(bf_max_job_user=1)
    own = sim.submit(ask(user="ann", limit=600), 600)
    other = sim.submit(ask(user="bob", limit=600), 600)
    after(sim, 900)
    assert start(sim, own) == -1
    assert start(sim, other) in SOON


def test_bf_max_job_part_passes_over_the_partitions_later_jobs() -> None:
    sim, _ = blocked_head(bf_max_job_part=1)
    same = sim.submit(ask(user="bob", limit=600), 600)
    second = sim.submit(ask(user="cat", limit=600, partition="second"), 600)
    after(sim, 900)
    assert start(sim, same) == -1
    assert start(sim, second) in SOON


def test_bf_max_job_start_limits_a_cycle() -> None:
    config = cluster(nodes=8, scheduler=replace(PROMPT, bf_max_job_start=1, sched_interval=600))
    sim = simulate(config)
    sim.submit(ask(nodes=5, limit=4000), 4000)
    sim.submit(ask(nodes=8, limit=1000), 1000)
    ids = [sim.submit(ask(limit=600), 600) for _ in range(3)]
    starts = sorted(start(after(sim, 500), job) for job in ids)
    assert starts[0] >= 0
    assert [later - earlier for earlier, later in pairwise(starts)] == [30, 30]


@pytest.mark.parametrize("reserve", [{"bf_min_age_reserve": 2000}, {"bf_min_prio_reserve": 4_294_967_000}])
def test_jobs_too_young_or_too_low_reserve_nothing(reserve: dict[str, int]) -> None:
    """bf_min_age_reserve, bf_min_prio_reserve: such jobs keep no later job from starting."""
    sim, _ = blocked_head(**reserve)
    long = sim.submit(ask(limit=5000), 5000)
    assert start(after(sim, 900), long) in SOON


def test_the_plan_shows_the_expected_start() -> None:
    sim, head = blocked_head()
    after(sim, 120)
    assert 940 <= sim.planned_starts()[head] - T0 <= 1060


def test_nodes_that_come_back_one_time_slot_behind_the_job_are_waited_for() -> None:
    """backfill.c asks whether the next time slot adds nodes before it sees that the job does not reach so far.

    n2 is idle; two planned jobs take n0 and n2 from 1000 to 4000 s, and n4 from 2000 s. A job of two nodes then
    has n1, n3 and n4 to itself at 1000 s, but they run until 10,000 s: n0 and n2 are free by 4000 s.
    """
    sim = simulate(cluster(nodes=5))
    for node, limit in (("n0", 1000), ("n1", 10_000), ("n3", 20_000), ("n4", 2000)):
        sim.submit(ask(node_list=node, limit=limit), limit)
    sim.submit(ask(nodes=2, node_list="n[0,2]", limit=3000), 3000)
    sim.submit(ask(node_list="n4", limit=4000), 4000)
    pair = sim.submit(ask(nodes=2, limit=500), 500)
    after(sim, 1)
    assert abs(sim.planned_starts()[pair] - T0 - 4000) <= 60


def test_a_run_ends_where_what_is_left_can_never_start() -> None:
    """With fair share priorities continue changing indefinitely, and slurmctld continues looking."""
    sim = simulate(cluster(priority=weights(fair_share=1000)))
    sim.set_nodes(["n3"], "drain")
    stuck = sim.submit(ask(nodes=4), 100)
    other = sim.submit(ask("bob"), 100)
    sim.run()
    assert (start(sim, stuck), start(sim, other)) == (-1, 0)
    assert sim.now < T0 + HOUR


def test_estimate_start_tells_when_a_job_would_start() -> None:
    sim, _ = blocked_head()
    after(sim, 120)
    assert sim.estimate_start(ask(limit=300)) - T0 <= 120 + 60
    assert 1940 <= sim.estimate_start(ask(nodes=4, limit=300)) - T0 <= 2120


def test_start_times_are_those_of_real_submissions() -> None:
    """A what-if run leaves the simulation as it was, and predicts what a submission then gets."""
    sim, _ = blocked_head()
    after(sim, 120)
    request = ask(user="cat", limit=500)
    moments = [T0 + 130, T0 + 700, T0 + 1500]
    foretold = [int(t) for t in sim.start_times(request, 500, moments)]
    assert sim.now == T0 + 120
    actual = []
    for moment in moments:
        branch = sim.copy()
        branch.run_until(moment)
        job = branch.submit(request, 500)
        branch.run()
        actual.append(branch.job(job).start)
    assert foretold == actual


def test_nodes_are_shared_by_cpus() -> None:
    sim = simulate(cluster(nodes=1, cpus=4, exclusive=False))
    ids = [sim.submit(ask(cpus_per_node=2, limit=500), 500) for _ in range(3)]
    after(sim, 2000)
    assert [start(sim, job) for job in ids] == [0, 0, 500]


def test_an_exclusive_job_takes_whole_nodes() -> None:
    """sbatch(1), --exclusive."""
    sim = simulate(cluster(nodes=1, cpus=4, exclusive=False))
    alone = sim.submit(ask(cpus_per_node=1, limit=500, exclusive=True), 500)
    later = sim.submit(ask(cpus_per_node=1, limit=500), 500)
    after(sim, 2000)
    assert (start(sim, alone), start(sim, later)) == (0, 500)


def test_memory_is_shared_out() -> None:
    config = replace(
        cluster(nodes=1, exclusive=False),
        nodes=(NodeGroup(names=("n0",), cpus=8, memory_mb=1000),),
    )
    sim = simulate(config)
    ids = [sim.submit(ask(cpus_per_node=1, memory_mb_per_node=600, limit=500), 500) for _ in range(2)]
    after(sim, 2000)
    assert [start(sim, job) for job in ids] == [0, 500]


def gpu_node() -> object:
    group = NodeGroup(names=("n0",), cpus=16, gres=(("gpu:a100", 2), ("gpu:v100", 2), ("npu", 1)))
    return simulate(replace(cluster(nodes=1, exclusive=False), nodes=(group,)))


def test_typed_gres_are_counted_by_type() -> None:
    sim = gpu_node()
    asked = (("gpu:a100", 2), ("gpu:v100", 2), ("npu", 1), ("gpu:a100", 1), ("npu", 1))
    ids = [sim.submit(ask(gres_per_node=(gres,), limit=500), 500) for gres in asked]
    after(sim, 2000)
    assert [start(sim, job) for job in ids] == [0, 0, 0, 500, 500]


def test_untyped_gres_take_any_type() -> None:
    """gres.conf(5): a request without a type is met by any."""
    sim = gpu_node()
    first = sim.submit(ask(gres_per_node=(("gpu:a100", 2),), limit=500), 500)
    any_type = sim.submit(ask(gres_per_node=(("gpu", 2),), limit=500), 500)
    none_left = sim.submit(ask(gres_per_node=(("gpu", 1),), limit=500), 500)
    after(sim, 2000)
    assert [start(sim, job) for job in (first, any_type, none_left)] == [0, 0, 500]


def test_features_select_nodes() -> None:
    """sbatch(1), --constraint with &: every feature must be there."""
    groups = (
        NodeGroup(names=("n0", "n1"), cpus=4, features=("ib",)),
        NodeGroup(names=("n2",), cpus=4, features=("ib", "big")),
    )
    sim = simulate(replace(cluster(nodes=3), nodes=groups))
    both = [sim.submit(ask(features=("ib", "big"), limit=500), 500) for _ in range(2)]
    assert after(sim, 100).allocation(both[0]) == ("n2",)
    after(sim, 2000)
    assert [start(sim, job) for job in both] == [0, 500]
    with pytest.raises(SubmissionRejected):
        sim.submit(ask(features=("none",)), 500)


def test_lighter_nodes_are_taken_first() -> None:
    """slurm.conf(5), Weight: nodes of the lowest weight that satisfy the request are allocated."""
    groups = (NodeGroup(names=("n0",), cpus=4, weight=10), NodeGroup(names=("n1",), cpus=4, weight=1))
    sim = simulate(replace(cluster(nodes=2), nodes=groups))
    job = sim.submit(ask(), 500)
    assert after(sim, 1).allocation(job) == ("n1",)


@pytest.mark.parametrize(
    ("grace", "ran", "state"),
    [(0, 600, JobState.TIMEOUT), (120, 720, JobState.TIMEOUT), (1200, 1000, JobState.COMPLETED)],
)
def test_over_time_limit_lets_jobs_run_past_their_limit(grace: int, ran: int, state: JobState) -> None:
    """OverTimeLimit: a job of limit 600 s that would run for 1000 s."""
    sim = simulate(cluster(scheduler=replace(PROMPT, over_time_limit=grace)))
    job = after(sim, 0).submit(ask(limit=600), 1000)
    ended = after(sim, 5000).job(job)
    assert (ended.end - ended.start, ended.state) == (ran, state)


def test_a_partitions_over_time_limit_replaces_the_clusters() -> None:
    config = cluster(
        scheduler=replace(PROMPT, over_time_limit=1200),
        partitions=(partition("main", FOUR, over_time_limit=60),),
    )
    sim = simulate(config)
    job = sim.submit(ask(limit=600), 1000)
    ended = after(sim, 5000).job(job)
    assert (ended.end - ended.start, ended.state) == (660, JobState.TIMEOUT)


def test_outcomes_are_kept() -> None:
    sim = simulate(cluster())
    failed = sim.submit(ask(), 100, JobState.FAILED, 3)
    ended = after(sim, 1000).job(failed)
    assert (ended.state, ended.exit_code) == (JobState.FAILED, 3)


def test_a_default_time_limit_is_the_partitions() -> None:
    config = cluster(partitions=(partition("main", FOUR, max_time=2000, default_time=700),), qos=(Qos("normal"),))
    sim = simulate(config)
    job = sim.submit(ask(limit=0), 5000)
    ended = after(sim, 9000).job(job)
    assert ended.end - ended.start == 700

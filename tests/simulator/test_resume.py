"""A cluster resumed from what its queue shows continues as the cluster itself, given the same runs and
arrivals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_clusters import HOUR, NO_BACKFILL, T0, ask, cluster
from small_trace import CLUSTER, DAY, trace

from mirage.backends.simulated import SimulatedCluster
from mirage.domain.job import NEVER, JobRequest
from mirage.domain.jobtable import Names, job_table
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.simulator.cluster import Association, ClusterConfig, PriorityWeights, with_nodes
from mirage.simulator.resume import Futures, Resumed, Resumption
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable

SERVICE = JobRequest("service", "nobody-else", limit=DAY, nodes=2)
BACKFILLED = replace(CLUSTER, priority=PriorityWeights(age=2 * 7 * DAY, calc_period=1))
"""Every second of age counts, without delay: no two jobs tie."""
AGED = replace(BACKFILLED, scheduler=NO_BACKFILL)
"""Without plans for single nodes it makes no difference which nodes running jobs hold: that is not seen."""
LIMITED = replace(AGED, default_association=Association(account="", max_jobs=2))


def numbers(snapshot: Snapshot, resumed: Resumed) -> np.ndarray:
    """Job ids by the rows that a future is given for."""
    return np.concatenate([snapshot.running.job_id, snapshot.pending.job_id])[resumed.rows]


def unknown(resumed: Resumed) -> np.ndarray:
    """``NEVER`` for every job."""
    return np.full(len(resumed.rows), NEVER, dtype=np.int64)


def as_it_was(table: JobTable, config: ClusterConfig, now: int, times: np.ndarray) -> tuple[list[int], list[int]]:
    """Starts of the service in the simulation itself, and in the one resumed from its snapshot."""
    world = SimulatedCluster(Simulation(config, table, start=now))
    snapshot = world.snapshot()
    resumption = Resumption(config)
    coming = resumption.coming(table.take(np.flatnonzero(table.submit > now)))
    resumed = resumption.resume(snapshot, SERVICE)
    runs = table.runtime[numbers(snapshot, resumed) - 1]
    played = Futures(resumed, len(coming)).starts(runs, unknown(resumed), coming, times, now + 30 * DAY)
    return world.simulation.start_times(SERVICE, DAY, times).tolist(), played.tolist()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), hours=st.integers(30, 200), limited=st.booleans())
def test_the_same_future_gives_the_same_starts(seed: int, hours: int, limited: bool) -> None:
    table = trace(seed, days=12, load=0.9)
    now = int(table.submit[0]) + hours * HOUR
    expected, played = as_it_was(table, LIMITED if limited else AGED, now, now + np.arange(0, 40, 5) * HOUR)
    assert played == expected


def test_with_backfill_starts_are_the_same_on_average() -> None:
    """Plans are for single nodes, and which of them running jobs hold is not seen: single starts may differ."""
    table = trace(1, days=12, load=0.9)
    waits, differences = [], []
    for hours in range(40, 200, 8):
        now = int(table.submit[0]) + hours * HOUR
        times = now + np.arange(0, 20, 4) * HOUR
        expected, played = (np.array(starts) for starts in as_it_was(table, BACKFILLED, now, times))
        waits.append((expected - times).mean())
        differences.append((played - expected).mean())
    assert abs(np.mean(differences)) <= 0.2 * np.mean(waits)


def queue(
    *, running: tuple[tuple[int, ...], ...] = (), pending: tuple[tuple[int, ...], ...] = (), down: int = 0
) -> Snapshot:
    """Jobs of one user on four nodes: (nodes, limit, start) and (nodes, limit, eligible, priority)."""
    ran, wait = len(running), len(pending)

    def columns(count: int, first: int, rows: tuple[tuple[int, ...], ...], *, runs: bool) -> JobColumns:
        zero = np.zeros(count, dtype=np.int64)
        get = np.array(rows, dtype=np.int64).reshape(count, -1).T if count else np.zeros((4, 0), dtype=np.int64)
        return JobColumns(
            job_id=np.arange(first, first + count),
            user=zero,
            partition=zero,
            qos=zero - 1,
            nodes=get[0],
            limit=get[1],
            submit=zero + T0 - 2 * HOUR,
            eligible=zero + T0 - 2 * HOUR if runs else get[2],
            start=get[2] if runs else zero - 1,
            priority=zero if runs else get[3],
            series=zero,
        )

    state = PartitionState("main", 4, 4 - down, 0, down)
    shown = (columns(wait, 1 + ran, pending, runs=False), columns(ran, 1, running, runs=True))
    return Snapshot(T0, *shown, (state,), ("ann",), ("main",), ())


def play(
    config: ClusterConfig, snapshot: Snapshot, runs: list[int], cancels: list[int] | None = None, nodes: int = 1
) -> int:
    """Hours after T0 at which a job of ``nodes`` starts; -1: not within ten days."""
    resumption = Resumption(config)
    nothing = resumption.coming(trace(0).take(np.empty(0, dtype=np.int64)))
    resumed = resumption.resume(snapshot, ask("bob", nodes=nodes))
    known = unknown(resumed) if cancels is None else np.array(cancels)
    played = Futures(resumed, 0).starts(np.array(runs), known, nothing, np.array([T0]), T0 + 10 * DAY)
    return -1 if played[0] == NEVER else round((int(played[0]) - T0) / HOUR)


FULL = ((4, 9 * HOUR, T0 - HOUR),)


def test_a_running_job_frees_its_nodes_when_the_future_says() -> None:
    assert play(cluster(), queue(running=FULL), [4 * HOUR]) == 3


def test_a_running_job_ends_at_its_limit_at_the_latest() -> None:
    assert play(cluster(), queue(running=FULL), [int(NEVER)]) == 8


def test_a_job_with_more_priority_goes_first_until_its_user_cancels_it() -> None:
    ahead = queue(running=FULL, pending=((4, 20 * HOUR, T0 - HOUR, 1000),))
    config = cluster(priority=PriorityWeights(age=10))
    assert play(config, ahead, [4 * HOUR, 5 * HOUR]) == 8
    assert play(config, ahead, [4 * HOUR, 5 * HOUR], [int(NEVER), T0 + HOUR]) == 3


def test_priority_beyond_what_is_computed_is_kept() -> None:
    """The waiting job's age gives it 2 more than ours; the queue shows that something takes 1000 away."""
    config = cluster(priority=PriorityWeights(age=1000, job_size=2000))
    behind = queue(running=FULL, pending=((4, 20 * HOUR, T0 - HOUR, 1),))
    assert play(config, behind, [4 * HOUR, 5 * HOUR], nodes=2) == 3


SHARED = cluster(priority=PriorityWeights(age=10, fair_share=10_000))
WAITS = queue(running=FULL, pending=((4, 20 * HOUR, T0 - HOUR, 5_000),))
"""Ann's waiting job shows that she is given half of what fair share may give."""


@pytest.mark.parametrize(("factor", "hours"), [(0.9, 3), (0.1, 8)])
def test_who_has_the_larger_share_goes_first(factor: float, hours: int) -> None:
    resumption = Resumption(SHARED)
    resumed = resumption.resume(WAITS, ask("bob"), factor)
    runs = np.array([4 * HOUR, 5 * HOUR])
    nothing = resumption.coming(trace(0).take(np.empty(0, dtype=np.int64)))
    played = Futures(resumed, 0).starts(runs, unknown(resumed), nothing, np.array([T0]), T0 + 10 * DAY)
    assert played[0] == T0 + hours * HOUR


def test_arrivals_have_the_share_that_their_users_waiting_jobs_show() -> None:
    arrivals = job_table(
        3,
        user=Names.encode(["ann", "bob", "eve"]),
        submit=np.arange(3, dtype=np.int64),
        limit=np.full(3, HOUR, dtype=np.int64),
        nodes=np.ones(3, dtype=np.int32),
    )
    for factor, bobs in ((0.1, 1_000), (float("nan"), 5_000)):
        resumption = Resumption(SHARED)
        coming = resumption.coming(arrivals)
        resumed = resumption.resume(WAITS, ask("bob"), factor)
        gained = resumed.shared(coming).jobs["static"] - coming.jobs["static"]
        assert gained == pytest.approx([5_000, bobs, 5_000], abs=10)
        assert resumed.candidate.job["static"][0] == pytest.approx(bobs, abs=10)


def test_where_fair_share_does_not_count_nobody_has_any() -> None:
    resumption = Resumption(cluster(priority=PriorityWeights(age=10)))
    resumed = resumption.resume(WAITS, ask("bob"), 0.9)
    assert resumed.candidate.job["static"][0] == 0
    assert resumed.shares.of(np.arange(3)).tolist() == [0, 0, 0]


def test_a_held_job_stays_where_it_is() -> None:
    held = queue(running=FULL, pending=((4, 20 * HOUR, int(NEVER), 5000),))
    assert play(cluster(), held, [4 * HOUR, 5 * HOUR]) == 3


def test_a_job_that_may_begin_later_waits_until_then() -> None:
    later = queue(pending=((4, 2 * HOUR, T0 + 3 * HOUR, 5000),))
    config = cluster(priority=PriorityWeights(age=10))
    assert play(config, later, [2 * HOUR], nodes=4) == 0


def test_nodes_that_are_down_are_not_used() -> None:
    assert play(cluster(), queue(down=1), [], nodes=3) == 0
    assert play(cluster(), queue(down=1), [], nodes=4) == -1


def test_a_smaller_cluster_than_the_one_seen_loses_running_jobs() -> None:
    both = queue(running=((2, 9 * HOUR, T0 - HOUR), (2, 9 * HOUR, T0 - HOUR)))
    config = with_nodes(cluster(), 3)
    resumed = Resumption(config).resume(both, ask())
    assert resumed.lost == 1
    assert play(config, both, [4 * HOUR, 6 * HOUR]) == 0


def test_playing_changes_nothing() -> None:
    table = trace(3, days=12, load=0.9)
    now = int(table.submit[0]) + 5 * DAY
    resumption = Resumption(CLUSTER)
    coming = resumption.coming(table.take(np.flatnonzero(table.submit > now)))
    resumed = resumption.resume(SimulatedCluster(Simulation(CLUSTER, table, start=now)).snapshot(), SERVICE)
    futures, times = Futures(resumed, len(coming)), now + np.arange(5) * HOUR
    runs = np.full(len(resumed.rows), HOUR)
    first, second = (
        futures.starts(runs, unknown(resumed), coming, times, now + 9 * DAY).tolist() for _ in range(2)
    )
    assert first == second


def test_arrivals_made_after_the_futures_are_refused() -> None:
    resumption = Resumption(LIMITED)
    resumed = resumption.resume(queue_of(LIMITED), SERVICE)
    futures = Futures(resumed, 5_000)
    coming = resumption.coming(trace(1))
    with pytest.raises(ValueError, match="after the futures"):
        futures.starts(unknown(resumed), unknown(resumed), coming, np.array([T0]), T0 + DAY)


def queue_of(config: ClusterConfig) -> Snapshot:
    return SimulatedCluster(Simulation(config, start=T0)).snapshot()

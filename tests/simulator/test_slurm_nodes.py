"""Nodes going down and draining, and advance reservations, by scontrol(1) and reservations.html."""

from __future__ import annotations

from dataclasses import replace

from small_clusters import HOUR, T0, after, ask, cluster, node_names, simulate, start

from mirage.domain.job import JobState
from mirage.simulator.cluster import NodeEvent, NodeGroup, Reservation

LATE = 200
"""Slurm holds a requeued job back for up to about two minutes."""


def test_a_node_going_down_requeues_its_job() -> None:
    """It runs again from its beginning, elsewhere."""
    sim = simulate(cluster(nodes=2))
    job = sim.submit(ask(limit=2000), 1000)
    (first,) = after(sim, 400).allocation(job)
    sim.set_nodes((first,), "down")
    after(sim, 400 + LATE)
    (second,) = sim.allocation(job)
    assert second != first
    ended = after(sim, HOUR).job(job)
    assert 400 <= start(sim, job) <= 400 + LATE
    assert (ended.state, ended.end - ended.start) == (JobState.COMPLETED, 1000)


def test_a_job_that_may_not_be_requeued_dies_with_its_node() -> None:
    """sbatch(1), --no-requeue; the job's other nodes come free."""
    sim = simulate(cluster(nodes=2))
    job = sim.submit(ask(nodes=2, limit=2000, requeue=False), 1000)
    other = sim.submit(ask(limit=100), 100)
    after(sim, 400)
    sim.set_nodes(("n1",), "down")
    after(sim, HOUR)
    assert (sim.job(job).state, sim.job(job).end) == (JobState.NODE_FAIL, T0 + 400)
    assert 400 <= start(sim, other) <= 400 + LATE


def test_draining_lets_jobs_finish_and_takes_no_new_ones() -> None:
    sim = simulate(cluster(nodes=1))
    running = sim.submit(ask(), 1000)
    waiting = sim.submit(ask(), 100)
    after(sim, 400)
    sim.set_nodes(("n0",), "drain")
    after(sim, 2000)
    assert sim.job(running).state is JobState.COMPLETED
    assert start(sim, waiting) == -1
    sim.set_nodes(("n0",), "resume")
    assert 2000 <= start(after(sim, HOUR), waiting) <= 2000 + LATE


def test_resuming_a_draining_node_keeps_its_job() -> None:
    sim = simulate(cluster(nodes=1))
    running = sim.submit(ask(), 1000)
    for state in ("drain", "resume"):
        sim.set_nodes(("n0",), state)
        after(sim, 100)
    assert (sim.job(running).state, sim.allocation(running)) == (JobState.RUNNING, ("n0",))


def test_nodes_may_start_down_and_change_by_events() -> None:
    config = replace(
        cluster(nodes=1),
        nodes=(NodeGroup(names=("n0",), cpus=4, down=True),),
        node_events=(NodeEvent(T0 + 500, ("n0",), "resume"),),
    )
    sim = simulate(config)
    job = sim.submit(ask(), 100)
    assert 500 <= start(after(sim, HOUR), job) <= 500 + LATE


def resv(start_: int, end: int, *nodes: str, user: str = "vip") -> Reservation:
    return Reservation("maint", T0 + start_, T0 + end, nodes, users=(user,))


def test_jobs_that_would_reach_into_a_reservation_wait() -> None:
    sim = simulate(cluster(nodes=1))
    sim.reserve(resv(1000, 2000, "n0"))
    short = sim.submit(ask(limit=600), 600)
    long = sim.submit(ask(limit=1200), 10)
    after(sim, HOUR)
    assert start(sim, short) in range(61)
    assert 2000 <= start(sim, long) <= 2000 + LATE


def test_other_nodes_are_free_during_a_reservation() -> None:
    sim = simulate(cluster(nodes=2))
    sim.reserve(resv(0, 2000, "n0"))
    ids = [sim.submit(ask(limit=900), 900) for _ in range(2)]
    after(sim, 500)
    assert [sim.allocation(job) for job in ids] == [("n1",), ()]


def test_a_reservation_is_for_its_users() -> None:
    sim = simulate(cluster(nodes=2))
    sim.reserve(resv(300, 2000, "n0"))
    inside = sim.submit(ask(user="vip", limit=900, reservation="maint"), 900)
    after(sim, 1100)
    assert 300 <= start(sim, inside) <= 300 + LATE
    assert sim.allocation(inside) == ("n0",)


def test_a_reservation_made_over_running_jobs_lets_them_finish() -> None:
    sim = simulate(cluster(nodes=1))
    running = sim.submit(ask(limit=2000), 1500)
    after(sim, 100)
    sim.reserve(resv(500, 3000, "n0"))
    assert after(sim, HOUR).job(running).end == T0 + 1500


def test_reservations_of_the_configuration_hold() -> None:
    names = node_names(2)
    config = cluster(nodes=2, reservations=(resv(0, 1000, *names),))
    sim = simulate(config)
    job = sim.submit(ask(), 100)
    assert 1000 <= start(after(sim, HOUR), job) <= 1000 + LATE

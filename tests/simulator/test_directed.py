"""Schedulers that the test starts, and nodes that a job has ended on and not left yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_clusters import T0, ask, cluster

from mirage.simulator.run import DirectedSimulation

if TYPE_CHECKING:
    from mirage.domain.job import JobId


def two_nodes(*sizes: int) -> tuple[DirectedSimulation, list[JobId]]:
    """n0 and n1, and pending jobs of these numbers of nodes."""
    sim = DirectedSimulation(cluster(nodes=2), start=T0)
    return sim, [sim.submit(ask(nodes=nodes), 600) for nodes in sizes]


def test_nothing_starts_without_a_look() -> None:
    sim, (job,) = two_nodes(1)
    sim.run_until(T0 + 6000)
    assert sim.allocation(job) == ()
    assert sim.would_start("main") == (job,)
    assert sim.allocation(job) == ()
    sim.look("main")
    assert sim.allocation(job) == ("n0",)


@pytest.mark.parametrize("kind", ["main", "full", "backfill"])
def test_a_job_starts_beside_a_node_that_is_completing(kind: str) -> None:
    sim, (job,) = two_nodes(1)
    assert sim.would_start(kind, ["n0"]) == (job,)
    sim.look(kind, ["n0"])
    assert sim.allocation(job) == ("n1",)


@pytest.mark.parametrize("kind", ["main", "full", "backfill"])
def test_nothing_starts_where_all_nodes_are_completing(kind: str) -> None:
    sim, (job,) = two_nodes(1)
    sim.look(kind, ["n0", "n1"])
    assert sim.allocation(job) == ()
    sim.look(kind)
    assert sim.allocation(job) == ("n0",)


def test_backfill_keeps_nodes_for_a_job_that_waits_for_one_that_is_completing() -> None:
    """Planned for now on both, it cannot start yet; what could have the other node is planned behind it."""
    sim, (pair, single) = two_nodes(2, 1)
    sim.look("backfill", ["n0"])
    assert sim.allocation(pair) == sim.allocation(single) == ()
    sim.look("backfill")
    assert sim.allocation(pair) == ("n0", "n1")


def test_a_drained_node_stays_so_when_it_is_said_to_be_completing() -> None:
    sim, (pair,) = two_nodes(2)
    sim.set_nodes(["n0"], "drain")
    sim.look("main", ["n0"])
    sim.look("main")
    assert sim.allocation(pair) == ()

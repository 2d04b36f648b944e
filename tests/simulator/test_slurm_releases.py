"""Rules that differ by Slurm's release, each in a case worked out manually from its cons_tres and backfill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_clusters import T0, after, ask, cluster, simulate

if TYPE_CHECKING:
    from mirage.simulator.cluster import SlurmRules


@pytest.mark.parametrize(("release", "node"), [("22.05", "n1"), ("23.11", "n0"), ("26.05", "n0")])
def test_best_fit_takes_the_fuller_node_until_a_job_counts_for_what_it_asks(
    release: SlurmRules, node: str
) -> None:
    """n1 has three of four CPUs free, n0 all; a job that asks for one could have one on either since 23.11."""
    sim = simulate(cluster(nodes=2, exclusive=False, slurm=release))
    sim.submit(ask(cpus_per_node=1, node_list="n1"), 1000)
    one = sim.submit(ask(cpus_per_node=1), 1000)
    assert after(sim, 60).allocation(one) == (node,)


@pytest.mark.parametrize(("release", "node"), [("22.05", "n3"), ("25.05", "n3"), ("26.05", "n0")])
def test_a_job_of_one_node_gets_the_first_that_will_do_since_26_05(release: SlurmRules, node: str) -> None:
    """n0 and n1 are a run of two, n3 one of one, which fits best."""
    sim = simulate(cluster(slurm=release))
    sim.submit(ask(node_list="n2"), 1000)
    one = sim.submit(ask(), 1000)
    assert after(sim, 60).allocation(one) == (node,)


@pytest.mark.parametrize("release", ["22.05", "26.05"])
def test_jobs_of_several_nodes_get_the_run_that_fits_best(release: SlurmRules) -> None:
    sim = simulate(cluster(nodes=6, slurm=release))
    sim.submit(ask(node_list="n3"), 1000)
    pair = sim.submit(ask(nodes=2), 1000)
    assert after(sim, 60).allocation(pair) == ("n4", "n5")


@pytest.mark.parametrize(("release", "start"), [("24.11", 1010), ("25.05", 1000)])
def test_a_planned_start_is_the_end_of_the_last_job_whose_nodes_are_taken(release: SlurmRules, start: int) -> None:
    """The jobs on n0 and n1 end within one span, so that both are given back before the third is tried: on n0."""
    sim = simulate(cluster(nodes=2, slurm=release))
    sim.submit(ask(node_list="n0", limit=1000), 1000)
    sim.submit(ask(node_list="n1", limit=1010), 1010)
    third = sim.submit(ask(limit=500), 500)
    after(sim, 0)
    assert sim.planned_starts()[third] - T0 == start

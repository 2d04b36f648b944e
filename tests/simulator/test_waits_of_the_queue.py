"""The waits that a simulated cluster reports are those of the queue: EligibleTime to StartTime, as in Slurm."""

from __future__ import annotations

from dataclasses import replace

from small_clusters import HOUR, T0, ask, cluster, simulate

from mirage.domain.job import Dependency, DependencyKind


def test_time_in_which_a_job_may_not_start_is_no_wait() -> None:
    """Nodes are free all the time: a job to begin later, one that depends on another, one that its owner holds."""
    simulation = simulate(cluster(nodes=4))
    first = simulation.submit(ask(limit=HOUR), runtime=HOUR)
    simulation.submit(replace(ask(limit=60), begin=T0 + 2 * HOUR), runtime=60)
    after_first = Dependency(DependencyKind.AFTERANY, first)
    simulation.submit(replace(ask(limit=60), dependencies=(after_first,)), runtime=60)
    held = simulation.submit(replace(ask(limit=60), held=True), runtime=60)
    simulation.run_until(T0 + HOUR // 2)
    simulation.release(held)
    simulation.run_until(T0 + 3 * HOUR)
    waits = simulation.waits(9)["wait"].tolist()
    assert len(waits) == 4
    assert max(waits) <= 60, "what a pass of the scheduler takes"


def test_time_behind_others_is_a_wait() -> None:
    simulation = simulate(cluster(nodes=1))
    simulation.submit(ask(limit=HOUR), runtime=HOUR)
    simulation.submit(ask(limit=60), runtime=60)
    simulation.run_until(T0 + 2 * HOUR)
    assert HOUR <= simulation.waits(9)["wait"].tolist()[1] <= HOUR + 60

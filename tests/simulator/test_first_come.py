"""priority/basic: a job's place in the queue is that of its submission, its release, or its last change of nice.

As a slurmctld 22.05.8 does: of job 3 (held), job 4 (not), ``scontrol release 3``, squeue shows for 4 the priority
4294901757 and for 3 4294901756, and 4 starts first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_clusters import HOUR, after, ask, cluster, priority, simulate, start, weights

from mirage.simulator.kernel.layout import HIGHEST_IN_TURN

if TYPE_CHECKING:
    from mirage.simulator.simulation import Simulation

ONE = cluster(1, priority=weights())


def busy() -> Simulation:
    """Its only node is taken for an hour."""
    sim = simulate(ONE)
    sim.submit(ask(), HOUR)
    return after(sim, 10)


def order(sim: Simulation, *jobs: int) -> list[int]:
    """The jobs as they start."""
    after(sim, 20 * HOUR)
    return sorted(jobs, key=lambda job: start(sim, job))


def test_released_job_goes_behind_those_that_wait() -> None:
    sim = busy()
    held, other = sim.submit(ask(held=True), HOUR), sim.submit(ask(), HOUR)
    sim.release(held)
    last = sim.submit(ask(), HOUR)
    assert [priority(sim, job) for job in (other, held, last)] == [HIGHEST_IN_TURN - place for place in (2, 3, 4)]
    assert order(sim, held, other, last) == [other, held, last]


def test_job_held_and_released_later_loses_its_place() -> None:
    sim = busy()
    first, second = sim.submit(ask(), HOUR), sim.submit(ask(), HOUR)
    sim.hold(first)
    assert priority(sim, first) == 0
    sim.release(first)
    assert order(sim, first, second) == [second, first]


def test_nice_job_keeps_its_place_before_later_ones_until_its_nice_is_changed() -> None:
    sim = busy()
    nice, other = sim.submit(ask(nice=1_000_000), HOUR), sim.submit(ask(), HOUR)
    assert priority(sim, nice) == HIGHEST_IN_TURN - 2 - 1_000_000
    assert priority(sim, other) == priority(sim, nice) - 1
    sim.set_nice(nice, 0)
    assert priority(sim, nice) == priority(sim, other) - 1
    assert order(sim, nice, other) == [other, nice]


@pytest.mark.parametrize("age", [0, 1_000])
def test_place_of_a_release_counts_only_where_nothing_weighs(age: int) -> None:
    """With weights the priority decides, and among equals the job id."""
    sim = simulate(cluster(1, priority=weights(age=age, accrue_always=True)))
    sim.submit(ask(), HOUR)
    after(sim, 10)
    held = sim.submit(ask(held=True), HOUR)
    after(sim, 700)
    other = sim.submit(ask(), HOUR)
    sim.release(held)
    assert order(sim, held, other) == ([held, other] if age else [other, held])

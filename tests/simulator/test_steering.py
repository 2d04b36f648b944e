"""What the owner of a pending job can do to it: the scenarios of slurm-testbed/experiments/steering.py.

Measured so on a real slurmctld: submitted at 0, changed after 40 minutes and again after 80, looked at after 90.
A priority is the age in minutes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from small_clusters import T0, after, ask, cluster, node_names, partition, priority, simulate, start, weights

from mirage.domain.job import Dependency, DependencyKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.job import JobId, JobRequest
    from mirage.simulator.cluster import ClusterConfig
    from mirage.simulator.simulation import Simulation

    Act = Callable[[Simulation, JobId], None]

MINUTE, HOUR, DAY = 60, 3_600, 86_400
AGE = weights(age=DAY // MINUTE, max_age=DAY, calc_period=MINUTE)
FIRST, SECOND, SEEN = 40 * MINUTE, 80 * MINUTE, 90 * MINUTE
NICE = 1_000_000

ENFORCED, ALWAYS, UNENFORCED = "limits enforced", "ACCRUE_ALWAYS", "limits not enforced"
CONFIGS = {
    ENFORCED: {"priority": AGE},
    ALWAYS: {"priority": replace(AGE, accrue_always=True)},
    UNENFORCED: {"priority": AGE, "enforce_limits": False},
}


def config(regime: str) -> ClusterConfig:
    """One node in "main"; one in "spare", so that the schedulers look at the queue."""
    names = node_names(2)
    parts = (partition("main", names[:1]), partition("spare", names[1:]))
    return cluster(nodes=2, partitions=parts, **CONFIGS[regime])


def nothing(sim: Simulation, job: JobId) -> None:
    pass


def hold(sim: Simulation, job: JobId) -> None:
    sim.hold(job)


def release(sim: Simulation, job: JobId) -> None:
    sim.release(job)


def lower(sim: Simulation, job: JobId) -> None:
    sim.set_nice(job, NICE)


def raise_again(sim: Simulation, job: JobId) -> None:
    sim.set_nice(job, 0)


def put_off(sim: Simulation, job: JobId) -> None:
    sim.set_begin(job, sim.now + 10 * HOUR)


def hurry(sim: Simulation, job: JobId) -> None:
    sim.set_begin(job, sim.now)


LEVERS: dict[str, tuple[JobRequest, Act, Act]] = {
    "left alone": (ask(), nothing, nothing),
    "submitted held, released": (ask(held=True), nothing, release),
    "held later, released": (ask(), hold, release),
    "submitted with high nice, nice 0": (ask(nice=NICE), nothing, raise_again),
    "high nice later, nice 0": (ask(), lower, raise_again),
    "submitted with begin, StartTime=now": (ask(begin=T0 + 10 * HOUR), nothing, hurry),
    "begin later, StartTime=now": (ask(), put_off, hurry),
    "begin in the past, again": (ask(), nothing, hurry),
    "begin that comes": (ask(begin=T0 + FIRST), nothing, nothing),
}
MEASURED = {
    # Age in minutes at 90 minutes: limits enforced, ACCRUE_ALWAYS, limits not enforced.
    "left alone": (90, 90, 90),
    "submitted held, released": (10, 90, 10),
    "held later, released": (10, 90, 90),
    "submitted with high nice, nice 0": (90, 90, 90),
    "high nice later, nice 0": (90, 90, 90),
    "submitted with begin, StartTime=now": (10, 90, 0),
    "begin later, StartTime=now": (10, 90, 90),
    "begin in the past, again": (10, 90, 90),
    "begin that comes": (50, 90, 50),
}


def waiting(regime: str) -> Simulation:
    """A cluster whose "main" another user has taken for twenty hours."""
    sim = simulate(config(regime))
    sim.submit(ask(user="bob", limit=20 * HOUR), 20 * HOUR)
    return after(sim, 0)


def play(sim: Simulation, lever: str) -> JobId:
    """Submit a job at ``T0`` and pull the lever; the clock then shows the second change."""
    request, first, second = LEVERS[lever]
    job = sim.submit(request, HOUR)
    first(after(sim, FIRST), job)
    second(after(sim, SECOND), job)
    return job


@pytest.mark.parametrize("lever", LEVERS)
@pytest.mark.parametrize("regime", CONFIGS)
def test_age_after_a_lever_is_the_measured_one(regime: str, lever: str) -> None:
    sim = waiting(regime)
    job = play(sim, lever)
    expected = MEASURED[lever][list(CONFIGS).index(regime)]
    assert priority(after(sim, SEEN), job) == max(1, expected)


@pytest.mark.parametrize(("regime", "age"), [(ENFORCED, 10), (ALWAYS, 90), (UNENFORCED, 10)])
def test_a_dependent_job_ages_only_where_it_always_accrues(regime: str, age: int) -> None:
    sim = waiting(regime)
    before = sim.submit(ask(partition="spare", limit=2 * DAY), SECOND)
    job = sim.submit(ask(dependencies=(Dependency(DependencyKind.AFTERANY, before),)), HOUR)
    assert priority(after(sim, SEEN), job) == age


@pytest.mark.parametrize("regime", CONFIGS)
def test_every_update_counts_the_age_until_its_own_instant(regime: str) -> None:
    """Others keep the priority of the last PriorityCalcPeriod; the updated job's is computed by the RPC itself."""
    slow = replace(config(regime), priority=replace(CONFIGS[regime]["priority"], calc_period=HOUR))
    sim = simulate(slow)
    sim.submit(ask(user="bob", limit=2 * DAY), 2 * DAY)
    alone, niced = sim.submit(ask(), HOUR), sim.submit(ask(nice=NICE), HOUR)
    sim.set_nice(niced, 0)
    after(sim, HOUR + 30 * MINUTE)
    sim.set_nice(niced, 1)
    sim.set_nice(niced, 0)
    assert (T0 + 80 * MINUTE) % HOUR == 0, "when the last period began"
    assert (priority(sim, alone), priority(sim, niced)) == (80, 90)


def test_a_job_without_accrued_age_goes_behind_those_that_waited_less() -> None:
    """Plan after a release: behind all users where limits are enforced, at its old place with ACCRUE_ALWAYS."""
    places = {}
    for regime in CONFIGS:
        sim = waiting(regime)
        job = sim.submit(ask(), HOUR)
        sim.hold(job)
        others = [sim.submit(ask(user="bob", begin=T0 + minutes * MINUTE), HOUR) for minutes in (10, 20)]
        after(sim, SECOND)
        assert job not in sim.planned_starts()
        sim.release(job)
        plan = sim.planned_starts()
        places[regime] = sorted((job, *others), key=plan.__getitem__).index(job)
    assert places == {ENFORCED: 2, ALWAYS: 0, UNENFORCED: 0}


def test_a_niced_job_starts_on_an_idle_node_and_in_a_hole_of_the_plan() -> None:
    """A high nice orders the queue, it does not keep a job from starting: only a hold or a begin time does."""
    names = node_names(2)
    sim = simulate(cluster(nodes=2, partitions=(partition("main", names),), priority=AGE))
    sim.submit(ask(user="bob", limit=10 * HOUR), 10 * HOUR)
    wide = sim.submit(ask(user="bob", nodes=2), HOUR)
    niced = sim.submit(ask(nice=NICE), HOUR)
    held = sim.submit(ask(held=True), HOUR)
    after(sim, 2 * HOUR)
    assert (start(sim, wide), start(sim, held)) == (-1, -1)
    assert 0 <= start(sim, niced) <= 60


def test_nice_changes_neither_eligibility_nor_reason() -> None:
    sim = waiting(ENFORCED)
    job = sim.submit(ask(), HOUR)
    after(sim, FIRST)
    sim.set_nice(job, NICE)
    pending, _ = after(sim, SECOND).columns()
    assert pending.eligible.tolist() == [T0]


@pytest.mark.parametrize("regime", CONFIGS)
def test_a_requeued_job_ages_from_its_requeue(regime: str) -> None:
    """job_mgr.c clears AccrueTime and moves SubmitTime: even ACCRUE_ALWAYS counts from the requeue."""
    sim = simulate(config(regime))
    job = sim.submit(ask(limit=DAY), DAY)
    after(sim, FIRST)
    sim.set_nodes(("n0",), "down")
    sim.set_nodes(("n0",), "drain")
    assert priority(after(sim, SECOND), job) == pytest.approx(40, abs=3)


def test_a_job_whose_age_is_yet_to_come_is_overtaken_when_others_age() -> None:
    """Limits not enforced, submitted with a begin time and hurried: AccrueTime stays in the future."""
    sim = simulate(config(UNENFORCED))
    sim.submit(ask(user="bob", limit=3 * HOUR), 3 * HOUR)
    hurried = sim.submit(ask(begin=T0 + 10 * HOUR), HOUR)
    younger = sim.submit(ask(user="bob"), HOUR)
    sim.set_begin(hurried, T0)
    after(sim, 6 * HOUR)
    assert start(sim, younger) < start(sim, hurried)

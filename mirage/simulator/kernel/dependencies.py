"""Dependencies between jobs (sbatch --dependency): who waits for whom, and when a wait is over."""

from __future__ import annotations

from mirage.simulator.kernel import agenda, eligibility
from mirage.simulator.kernel.compile import compiled
from mirage.simulator.kernel.layout import (
    AFTER,
    AFTERANY,
    AFTERNOTOK,
    AFTEROK,
    COMPLETED,
    ON_DEPENDENCY,
    RUNNING,
    Fixed,
    World,
)


@compiled
def add_dependency(world: World, owner: int, kind: int, delay: int, target: int) -> None:
    """Make the job in ``owner`` (being filled, not yet entered) wait for the job in ``target``."""
    sim = world.sim[0]
    if kind == AFTER and world.jobs[target].status == RUNNING:
        due = world.jobs[target].start + delay
        if due > sim.now:
            world.jobs[owner].open_dependencies += 1
            agenda.schedule(world, due, ON_DEPENDENCY, owner)
        return
    d = sim.free_dep
    if d >= 0:
        sim.free_dep = world.deps[d].next_free
    else:
        d = sim.deps
        sim.deps += 1
    entry = world.deps[d]
    entry.kind, entry.delay, entry.owner = kind, delay, owner
    entry.generation = world.jobs[owner].generation
    entry.next_waiter = world.jobs[target].first_waiter
    world.jobs[target].first_waiter = d
    world.jobs[owner].open_dependencies += 1


@compiled
def close_dependency(fixed: Fixed, world: World, owner: int) -> None:
    """A job has left the queue, and with that one more condition of a pending job holds: passes follow at once."""
    world.jobs[owner].open_dependencies -= 1
    if world.jobs[owner].open_dependencies == 0:
        eligibility.settle_eligibility(fixed, world, owner)
        eligibility.wake(fixed, world)


@compiled
def close_unnoticed(fixed: Fixed, world: World, owner: int, first: int) -> None:
    """One more condition of a pending job holds, by a start or as time has passed; passes do not follow."""
    world.jobs[owner].open_dependencies -= 1
    if world.jobs[owner].open_dependencies == 0:
        eligibility.await_notice(fixed, world, owner, first)


@compiled
def meet_dependents(fixed: Fixed, world: World, slot: int) -> None:
    """The job has started: meet the ``after`` conditions on it, keep the others."""
    sim, job = world.sim[0], world.jobs[slot]
    d, kept = job.first_waiter, -1
    while d >= 0:
        entry = world.deps[d]
        following = entry.next_waiter
        if entry.kind == AFTER:
            if world.jobs[entry.owner].generation == entry.generation:
                if entry.delay > 0:
                    agenda.schedule(world, sim.now + entry.delay, ON_DEPENDENCY, entry.owner)
                else:
                    close_unnoticed(fixed, world, entry.owner, sim.now + 1)
            entry.next_free = sim.free_dep
            sim.free_dep = d
        else:
            entry.next_waiter = kept
            kept = d
        d = following
    job.first_waiter = kept


@compiled
def release_dependents(fixed: Fixed, world: World, slot: int, state: int, exit_code: int) -> None:
    """The job has left the queue: every condition on it is met, or never can be."""
    sim, job = world.sim[0], world.jobs[slot]
    good = state == COMPLETED and exit_code == 0
    d = job.first_waiter
    while d >= 0:
        entry = world.deps[d]
        following, owner = entry.next_waiter, entry.owner
        if world.jobs[owner].generation == entry.generation:
            met = (
                entry.kind in (AFTER, AFTERANY)
                or (entry.kind == AFTEROK and good)
                or (entry.kind == AFTERNOTOK and not good)
            )
            if met and entry.kind == AFTER and entry.delay > 0:
                agenda.schedule(world, sim.now + entry.delay, ON_DEPENDENCY, owner)
            elif met:
                close_dependency(fixed, world, owner)
            else:
                world.jobs[owner].never = 1
                eligibility.settle_eligibility(fixed, world, owner)
        entry.next_free = sim.free_dep
        sim.free_dep = d
        d = following
    job.first_waiter = -1

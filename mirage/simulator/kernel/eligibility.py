"""Whether only resources hold a job, and what has the schedulers look at the queue again."""

from __future__ import annotations

from mirage.simulator.kernel import agenda, queue
from mirage.simulator.kernel.compile import compiled, inlined
from mirage.simulator.kernel.layout import (
    BEGIN,
    DEPENDENCY,
    DEPENDENCY_NEVER,
    HELD,
    NEVER,
    NONE,
    ON_NOTICE,
    PENDING,
    RUNNING,
    WHILE_ELIGIBLE,
    Fixed,
    World,
)


@inlined
def next_tick(boot: int, period: int, at: int) -> int:
    """The first time from ``at`` on that is whole periods after ``boot``."""
    return boot + (at - boot + period - 1) // period * period


@compiled
def wake(fixed: Fixed, world: World) -> None:
    """Something changed that may let a job start: have the main loop and backfill run when they may.

    Nothing can start while no node has room; whatever gives room back wakes them again.
    """
    sim, config = world.sim[0], fixed.config[0]
    if sim.idle == 0:
        return
    if sim.main_due == NEVER:
        sim.main_due = max(sim.now, sim.last_main + config.batch_sched_delay)
    if config.backfill == 1 and sim.backfill_due == NEVER:
        sim.backfill_due = next_tick(config.boot, config.bf_interval, max(sim.now, sim.last_backfill + 1))


@compiled
def await_notice(fixed: Fixed, world: World, slot: int, first: int) -> None:
    """A condition of a pending job holds by now. Nobody tells slurmctld: its next pass finds out, which is at the
    latest the first regular one from ``first`` on.
    """
    config = fixed.config[0]
    tick = next_tick(config.boot, config.sched_interval, first)
    if config.backfill == 1:
        tick = min(tick, next_tick(config.boot, config.bf_interval, first))
    world.sim[0].unnoticed = 1
    agenda.schedule(world, tick, ON_NOTICE, slot)


@compiled
def notice(fixed: Fixed, world: World) -> None:
    """To be called as a pass begins: whose conditions hold by now? What it starts itself comes too late for it."""
    sim = world.sim[0]
    if sim.unnoticed == 0:
        return
    sim.unnoticed = 0
    for i in range(sim.pending):
        if world.jobs[world.pending[i]].eligible == NEVER:
            settle_eligibility(fixed, world, world.pending[i])


@compiled
def settle_eligibility(fixed: Fixed, world: World, slot: int) -> None:
    """Recompute whether only resources hold the job, since when, its reason, and from when its age counts.

    A begin time that has come counts from itself, whenever it is noticed.
    """
    sim, job = world.sim[0], world.jobs[slot]
    blocked, began = True, job.reason == BEGIN
    if job.never == 1:
        job.reason = DEPENDENCY_NEVER
    elif job.held == 1:
        job.reason = HELD
    elif job.begin > sim.now:
        job.reason = BEGIN
    elif job.open_dependencies > 0 or job.singleton == 1:
        job.reason = DEPENDENCY
    else:
        blocked = False
        job.reason = NONE
    if blocked:
        job.eligible = NEVER
    elif job.eligible == NEVER:
        job.eligible = job.begin if began else sim.now
    _settle_accrual(fixed, world, slot)


@compiled
def _settle_accrual(fixed: Fixed, world: World, slot: int) -> None:
    """From when the job's age counts: AccrueTime as acct_policy.c keeps it, found alike on a real slurmctld.

    Where limits are enforced, a hold, an open dependency or a begin time to come forgets it. Where they are not,
    it is set once, to the begin time if that is still to come, and nothing changes it any more.
    """
    job = world.jobs[slot]
    if fixed.config[0].ageing == WHILE_ELIGIBLE:
        job.accrue = job.eligible
    elif job.accrue == NEVER:
        job.accrue = job.begin if job.begin > world.sim[0].now else job.eligible


@compiled
def settle_singleton(world: World, slot: int) -> None:
    """Drop the condition once it has held: what starts under the name later no longer matters, as in slurmctld."""
    if _first_of_series(world, slot):
        world.jobs[slot].singleton = 0
        world.sim[0].singletons -= 1


@compiled
def _first_of_series(world: World, slot: int) -> bool:
    """Whether no other job of the same user and name runs, and no older one is pending."""
    job = world.jobs[slot]
    for s in range(world.sim[0].slots):
        other = world.jobs[s]
        if other.name == job.name and other.user == job.user and s != slot:
            if other.status == RUNNING or (other.status == PENDING and queue.is_older(world, s, slot)):
                return False
    return True


@compiled
def wake_series(fixed: Fixed, world: World, user: int, name: int) -> None:
    """A job of a series ended: the next singleton of it may be free to go."""
    for i in range(world.sim[0].pending):
        slot = world.pending[i]
        job = world.jobs[slot]
        if job.singleton == 1 and job.user == user and job.name == name:
            settle_singleton(world, slot)
            settle_eligibility(fixed, world, slot)

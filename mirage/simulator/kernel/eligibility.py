"""When the schedulers may consider a job: the agenda of what is due, dependencies, and begin times.

The agenda is a binary heap, ordered by (time, kind, order of entry). Dependencies are those of sbatch
--dependency: who waits for whom, and when a wait is over.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import priorities
from mirage.simulator.kernel.compile import compiled, inlined
from mirage.simulator.kernel.layout import (
    AFTER,
    AFTERANY,
    AFTERNOTOK,
    AFTEROK,
    BEGIN,
    COMPLETED,
    DEPENDENCY,
    DEPENDENCY_NEVER,
    HELD,
    NEVER,
    NONE,
    ON_DEPENDENCY,
    ON_NOTICE,
    PENDING,
    RUNNING,
    WHILE_ELIGIBLE,
    ControllerState,
    Fixed,
)


@compiled
def _before(agenda: np.ndarray, a: int, b: int) -> bool:
    if agenda[a].time != agenda[b].time:
        return agenda[a].time < agenda[b].time
    if agenda[a].kind != agenda[b].kind:
        return agenda[a].kind < agenda[b].kind
    return agenda[a].sequence < agenda[b].sequence


@compiled
def _swap(agenda: np.ndarray, a: int, b: int) -> None:
    x, y = agenda[a], agenda[b]
    time, kind, sequence, slot, generation = x.time, x.kind, x.sequence, x.slot, x.generation
    x.time, x.kind, x.sequence, x.slot, x.generation = y.time, y.kind, y.sequence, y.slot, y.generation
    y.time, y.kind, y.sequence, y.slot, y.generation = time, kind, sequence, slot, generation


@compiled
def schedule(world: ControllerState, time: int, kind: int, slot: int) -> None:
    """Enter an event of the job in ``slot``; it is void once the slot holds another job."""
    sim, agenda = world.sim[0], world.agenda
    i = sim.agenda
    sim.agenda = i + 1
    sim.sequence += 1
    entry = agenda[i]
    entry.time, entry.kind, entry.sequence = time, kind, sim.sequence
    entry.slot, entry.generation = slot, world.jobs[slot].generation
    while i > 0:
        up = (i - 1) >> 1
        if not _before(agenda, i, up):
            break
        _swap(agenda, i, up)
        i = up


@compiled
def drop_first(world: ControllerState) -> None:
    """Take the earliest entry off the agenda."""
    sim, agenda = world.sim[0], world.agenda
    n = sim.agenda - 1
    sim.agenda = n
    if n == 0:
        return
    _swap(agenda, 0, n)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _before(agenda, child + 1, child):
            child += 1
        if not _before(agenda, child, i):
            break
        _swap(agenda, i, child)
        i = child


@inlined
def next_tick(boot: int, period: int, at: int) -> int:
    """The first time from ``at`` on that is whole periods after ``boot``."""
    return boot + (at - boot + period - 1) // period * period


@compiled
def wake(fixed: Fixed, world: ControllerState) -> None:
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
def await_notice(fixed: Fixed, world: ControllerState, slot: int, first: int) -> None:
    """A condition of a pending job holds by now. Nobody tells slurmctld: its next pass finds out, which is at the
    latest the first regular one from ``first`` on.
    """
    config = fixed.config[0]
    tick = next_tick(config.boot, config.sched_interval, first)
    if config.backfill == 1:
        tick = min(tick, next_tick(config.boot, config.bf_interval, first))
    world.sim[0].unnoticed = 1
    schedule(world, tick, ON_NOTICE, slot)


@compiled
def notice(fixed: Fixed, world: ControllerState) -> None:
    """To be called as a pass begins: whose conditions hold by now? What it starts itself comes too late for it."""
    sim = world.sim[0]
    if sim.unnoticed == 0:
        return
    sim.unnoticed = 0
    for i in range(sim.pending):
        if world.jobs[world.pending[i]].eligible == NEVER:
            settle_eligibility(fixed, world, world.pending[i])


@compiled
def settle_eligibility(fixed: Fixed, world: ControllerState, slot: int) -> None:
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
def _settle_accrual(fixed: Fixed, world: ControllerState, slot: int) -> None:
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
def settle_singleton(world: ControllerState, slot: int) -> None:
    """Drop the condition once it has held: what starts under the name later no longer matters, as in slurmctld."""
    if _first_of_series(world, slot):
        world.jobs[slot].singleton = 0
        world.sim[0].singletons -= 1


@compiled
def _first_of_series(world: ControllerState, slot: int) -> bool:
    """Whether no other job of the same user and name runs, and no older one is pending."""
    job = world.jobs[slot]
    for s in range(world.sim[0].slots):
        other = world.jobs[s]
        if other.name == job.name and other.user == job.user and s != slot:
            if other.status == RUNNING or (other.status == PENDING and priorities.is_older(world, s, slot)):
                return False
    return True


@compiled
def wake_series(fixed: Fixed, world: ControllerState, user: int, name: int) -> None:
    """A job of a series ended: the next singleton of it may be free to go."""
    for i in range(world.sim[0].pending):
        slot = world.pending[i]
        job = world.jobs[slot]
        if job.singleton == 1 and job.user == user and job.name == name:
            settle_singleton(world, slot)
            settle_eligibility(fixed, world, slot)


@compiled
def add_dependency(world: ControllerState, owner: int, kind: int, delay: int, target: int) -> None:
    """Make the job in ``owner`` (being filled, not yet entered) wait for the job in ``target``."""
    sim = world.sim[0]
    if kind == AFTER and world.jobs[target].status == RUNNING:
        due = world.jobs[target].start + delay
        if due > sim.now:
            world.jobs[owner].open_dependencies += 1
            schedule(world, due, ON_DEPENDENCY, owner)
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
def close_dependency(fixed: Fixed, world: ControllerState, owner: int) -> None:
    """A job has left the queue, and with that one more condition of a pending job holds: passes follow at once."""
    world.jobs[owner].open_dependencies -= 1
    if world.jobs[owner].open_dependencies == 0:
        settle_eligibility(fixed, world, owner)
        wake(fixed, world)


@compiled
def close_unnoticed(fixed: Fixed, world: ControllerState, owner: int, first: int) -> None:
    """One more condition of a pending job holds, by a start or as time has passed; passes do not follow."""
    world.jobs[owner].open_dependencies -= 1
    if world.jobs[owner].open_dependencies == 0:
        await_notice(fixed, world, owner, first)


@compiled
def meet_dependents(fixed: Fixed, world: ControllerState, slot: int) -> None:
    """The job has started: meet the ``after`` conditions on it, keep the others."""
    sim, job = world.sim[0], world.jobs[slot]
    d, kept = job.first_waiter, -1
    while d >= 0:
        entry = world.deps[d]
        following = entry.next_waiter
        if entry.kind == AFTER:
            if world.jobs[entry.owner].generation == entry.generation:
                if entry.delay > 0:
                    schedule(world, sim.now + entry.delay, ON_DEPENDENCY, entry.owner)
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
def release_dependents(fixed: Fixed, world: ControllerState, slot: int, state: int, exit_code: int) -> None:
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
                schedule(world, sim.now + entry.delay, ON_DEPENDENCY, owner)
            elif met:
                close_dependency(fixed, world, owner)
            else:
                world.jobs[owner].never = 1
                settle_eligibility(fixed, world, owner)
        entry.next_free = sim.free_dep
        sim.free_dep = d
        d = following
    job.first_waiter = -1

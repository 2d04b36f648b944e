"""What is asked of the controller from outside: submit, cancel, hold, release, change."""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import (
    agenda,
    backfill,
    bitsets,
    dependencies,
    eligibility,
    engine,
    lifecycle,
    mainloop,
    nodes,
    queue,
)
from mirage.simulator.kernel.compile import compiled
from mirage.simulator.kernel.layout import (
    CANCELLED,
    MUST_ROW,
    NEVER,
    ON_BEGIN,
    ON_DEPENDENCY,
    Candidate,
    Fixed,
    Record,
    Scratch,
    World,
)

BACKFILL = -1
"""Stands for the depth of a pass that is not the main loop's."""

# Columns of the conditions handed to ``submit``.
C_KIND, C_DELAY, C_TARGET, C_MET, C_DUE = range(5)


@compiled
def submit(
    fixed: Fixed,
    world: World,
    scratch: Scratch,
    record: Record,
    candidate: Candidate,
    conditions: np.ndarray,
) -> int:
    """Submit a job now; returns its id.

    Conditions are rows of (kind, delay, target slot; -1: it has left the queue, then 1 met / 0 never, and from
    when it is met). -1: a limit on submitted jobs rejects it. Tables must have room.
    """
    sim = world.sim[0]
    slot = lifecycle.admit(fixed, world, scratch, candidate)
    if slot < 0:
        return -1
    for c in range(conditions.shape[0]):
        if conditions[c, C_TARGET] >= 0:
            dependencies.add_dependency(
                world, slot, conditions[c, C_KIND], conditions[c, C_DELAY], conditions[c, C_TARGET]
            )
        elif conditions[c, C_MET] == 0:
            world.jobs[slot].never = 1
        elif conditions[c, C_DUE] > sim.now:
            world.jobs[slot].open_dependencies += 1
            agenda.schedule(world, conditions[c, C_DUE], ON_DEPENDENCY, slot)
    lifecycle.enter(fixed, world, record, slot)
    return sim.next_id - 1


@compiled
def find(world: World, job_id: int) -> int:
    """The slot of a pending or running job, -1 if there is none with this id."""
    for s in range(world.sim[0].slots):
        if world.jobs[s].status >= 0 and world.jobs[s].id == job_id:
            return s
    return -1


@compiled
def cancel(fixed: Fixed, world: World, scratch: Scratch, record: Record, slot: int) -> None:
    """Cancel a pending or running job now."""
    queue.before_change(fixed, world, scratch)
    lifecycle.finish(fixed, world, record, slot, CANCELLED)


@compiled
def _replace_in_queue(fixed: Fixed, world: World, scratch: Scratch, slot: int) -> None:
    """After a change: the job's priority as of now, as after every update; the others keep their period's."""
    queue.refresh(fixed, world, scratch)
    queue.remove(world, slot)
    eligibility.settle_eligibility(fixed, world, slot)
    queue.prioritise(fixed, world, slot, world.sim[0].now)
    queue.insert(world, slot)
    eligibility.wake(fixed, world)


@compiled
def set_hold(fixed: Fixed, world: World, scratch: Scratch, slot: int, held: int) -> None:
    """Hold (1) or release (0) a pending job."""
    released = world.jobs[slot].held == 1 and held == 0
    world.jobs[slot].held = held
    if released:
        queue.take_place(fixed, world, slot)
    _replace_in_queue(fixed, world, scratch, slot)


@compiled
def set_nice(fixed: Fixed, world: World, scratch: Scratch, slot: int, nice: int) -> None:
    """Change a pending job's nice value."""
    world.jobs[slot].nice = nice
    queue.take_place(fixed, world, slot)
    _replace_in_queue(fixed, world, scratch, slot)


@compiled
def set_begin(fixed: Fixed, world: World, scratch: Scratch, slot: int, begin: int) -> None:
    """Change when a pending job may begin; what has passed stands for now. Its eligibility begins again."""
    job, now = world.jobs[slot], world.sim[0].now
    if job.begin == max(begin, now):
        return
    job.begin, job.eligible = max(begin, now), NEVER
    if begin > now:
        agenda.schedule(world, begin, ON_BEGIN, slot)
    _replace_in_queue(fixed, world, scratch, slot)


@compiled
def set_node_list(fixed: Fixed, world: World, scratch: Scratch, slot: int, must: np.ndarray) -> None:
    """Change the nodes that a pending job submitted from outside must have; the empty set: any will do."""
    job = world.jobs[slot]
    bitsets.assign(world.bits[MUST_ROW + 2 * job.own], must)
    job.listed = bitsets.count(must)
    _replace_in_queue(fixed, world, scratch, slot)


@compiled
def start_on(fixed: Fixed, world: World, scratch: Scratch, record: Record, slot: int, chosen: np.ndarray) -> bool:
    """Start a pending job on these nodes now, whatever limits and partitions say; False if they have no room."""
    queue.before_change(fixed, world, scratch)
    room = scratch.bits[0]
    bitsets.assign(room, chosen)
    if nodes.keep_fitting(fixed, world, slot, room) < bitsets.count(chosen):
        return False
    queue.remove(world, slot)
    lifecycle.start(fixed, world, record, slot, chosen)
    return True


@compiled
def look(fixed: Fixed, world: World, scratch: Scratch, record: Record, depth: int) -> None:
    """One pass now: of the main loop over so many jobs, or of backfill; use it on a copy."""
    if depth == BACKFILL:
        backfill.run(fixed, world, scratch, record, False)
    else:
        mainloop.run(fixed, world, scratch, record, depth)


@compiled
def plan(fixed: Fixed, world: World, scratch: Scratch, record: Record) -> None:
    """A full backfill pass that leaves every pending job's planned start; use it on a copy."""
    sim = world.sim[0]
    for i in range(sim.pending):
        world.jobs[world.pending[i]].expected = NEVER
    backfill.run(fixed, world, scratch, record, True)


@compiled
def planned_start(fixed: Fixed, world: World, scratch: Scratch, record: Record, candidate: Candidate) -> int:
    """When Slurm's plan would start a job submitted now; NEVER if not within its window. Use it on a copy."""
    if not engine.place_candidate(fixed, world, scratch, record, candidate):
        return NEVER
    own = world.sim[0].watch
    slot = world.own[own].slot
    plan(fixed, world, scratch, record)
    if world.own[own].start != NEVER:
        return world.own[own].start
    return world.jobs[slot].expected

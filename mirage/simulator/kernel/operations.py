"""What is asked of the controller from outside: submit, cancel, hold, release, change, plan, play on.

States that begin in the middle are put together from what a queue shows, and played on with sampled futures.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import bitsets, eligibility, engine, lifecycle, nodes, priorities, schedulers
from mirage.simulator.kernel.compile import compiled
from mirage.simulator.kernel.layout import (
    CANCELLED,
    MUST_ROW,
    NEVER,
    NONE,
    ON_BEGIN,
    ON_CANCEL,
    ON_DEPENDENCY,
    ON_END,
    PENDING,
    RUNNING,
    Candidate,
    ControllerState,
    Fixed,
    KernelRecord,
    Scratch,
)


@compiled
def resume(
    fixed: Fixed, world: ControllerState, scratch: Scratch, rows: np.ndarray, needs: np.ndarray, slots: np.ndarray
) -> None:
    """Fill an idle world with jobs: those whose start is known run since then, the others wait.

    ``slots[i]``: where row i went; -1 for one that runs but finds no nodes here. When running jobs end is not
    yet said (see ``impose``).
    """
    for i in range(rows.shape[0]):
        slot = lifecycle.new_slot(world)
        generation = world.jobs[slot].generation
        world.jobs[slot] = rows[i]
        world.jobs[slot].generation = generation
        bitsets.assign(world.needs[slot], needs[i])
        slots[i] = slot
        if rows[i].start == NEVER:
            _wait(fixed, world, slot)
        elif not _run(fixed, world, scratch, slot):
            lifecycle.free_slot(world, slot)
            slots[i] = -1
    eligibility.wake(fixed, world)


@compiled
def _run(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int) -> bool:
    """Have the job run on any nodes that fit; False if there are none."""
    job, usable, chosen, work = world.jobs[slot], scratch.bits[1], scratch.bits[2], scratch.bits[3]
    nodes.candidates(fixed, world, slot, usable)
    if nodes.keep_fitting(fixed, world, slot, usable) < job.nodes:
        return False
    nodes.choose(fixed, world, slot, usable, world.free, chosen, work)
    nodes.allocate(fixed, world, slot, chosen)
    job.status, job.reason, job.limit_end = RUNNING, NONE, job.start + job.limit
    job.end = job.limit_end
    lifecycle.count_submitted(fixed, world, slot, 1)
    lifecycle.count_running(fixed, world, slot, 1)
    lifecycle.insert_running(world, slot)
    return True


@compiled
def _wait(fixed: Fixed, world: ControllerState, slot: int) -> None:
    """Have the job wait; its age counts as the row says."""
    job = world.jobs[slot]
    job.status, job.reason = PENDING, NONE
    lifecycle.count_submitted(fixed, world, slot, 1)
    priorities.prioritise(fixed, world, slot, world.sim[0].now)
    priorities.insert(world, slot)
    if job.begin > world.sim[0].now:
        eligibility.schedule(world, job.begin, ON_BEGIN, slot)


@compiled
def impose(
    fixed: Fixed, world: ControllerState, slots: np.ndarray, runtimes: np.ndarray, cancels: np.ndarray
) -> None:
    """Say how long each resumed job runs in all, and when its user cancels it if it still waits then."""
    now = world.sim[0].now
    for i in range(slots.shape[0]):
        if slots[i] < 0:
            continue
        job = world.jobs[slots[i]]
        job.runtime = runtimes[i]
        if job.status == RUNNING:
            allowed = job.limit + fixed.partitions[job.partition].over
            job.end = max(now, job.start + min(runtimes[i], allowed))
            eligibility.schedule(world, job.end, ON_END, slots[i])
        elif cancels[i] != NEVER:
            job.cancel_at = max(now, cancels[i])
            eligibility.schedule(world, job.cancel_at, ON_CANCEL, slots[i])


@compiled
def future_starts(
    fixed: Fixed,
    base: ControllerState,
    run: ControllerState,
    work: ControllerState,
    scratch: Scratch,
    record: KernelRecord,
    candidate: Candidate,
    slots: np.ndarray,
    runtimes: np.ndarray,
    cancels: np.ndarray,
    times: np.ndarray,
    until: int,
    starts: np.ndarray,
) -> int:
    """``starts[k]``: when a job submitted at ``times[k]`` would start in one future of ``base``.

    The future is ``fixed.arrivals`` and what ``impose`` says. ``run`` and ``work`` are overwritten; they must hold
    all that may come. NEVER where it has not started at ``until``. Returns the number of times done.
    """
    engine.copy_world(base, run)
    impose(fixed, run, slots, runtimes, cancels)
    for k in range(times.shape[0]):
        done = engine.starts_if_submitted(
            fixed,
            run,
            work,
            scratch,
            record,
            candidate,
            times[k : k + 1],
            max(until - times[k], 0),
            starts[k : k + 1],
        )
        if done == 0:
            return k
    return times.shape[0]


BACKFILL = -1
"""Stands for the depth of a pass that is not the main loop's."""

# Columns of the conditions handed to ``submit``.
C_KIND, C_DELAY, C_TARGET, C_MET, C_DUE = range(5)


@compiled
def submit(
    fixed: Fixed,
    world: ControllerState,
    scratch: Scratch,
    record: KernelRecord,
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
            eligibility.add_dependency(
                world, slot, conditions[c, C_KIND], conditions[c, C_DELAY], conditions[c, C_TARGET]
            )
        elif conditions[c, C_MET] == 0:
            world.jobs[slot].never = 1
        elif conditions[c, C_DUE] > sim.now:
            world.jobs[slot].open_dependencies += 1
            eligibility.schedule(world, conditions[c, C_DUE], ON_DEPENDENCY, slot)
    lifecycle.enter(fixed, world, record, slot)
    return sim.next_id - 1


@compiled
def find(world: ControllerState, job_id: int) -> int:
    """The slot of a pending or running job, -1 if there is none with this id."""
    for s in range(world.sim[0].slots):
        if world.jobs[s].status >= 0 and world.jobs[s].id == job_id:
            return s
    return -1


@compiled
def cancel(fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, slot: int) -> None:
    """Cancel a pending or running job now."""
    priorities.before_change(fixed, world, scratch)
    lifecycle.finish(fixed, world, record, slot, CANCELLED)


@compiled
def _replace_in_queue(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int) -> None:
    """After a change: the job's priority as of now, as after every update; the others keep their period's."""
    priorities.refresh(fixed, world, scratch)
    priorities.remove(world, slot)
    eligibility.settle_eligibility(fixed, world, slot)
    priorities.prioritise(fixed, world, slot, world.sim[0].now)
    priorities.insert(world, slot)
    eligibility.wake(fixed, world)


@compiled
def set_hold(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int, held: int) -> None:
    """Hold (1) or release (0) a pending job."""
    released = world.jobs[slot].held == 1 and held == 0
    world.jobs[slot].held = held
    if released:
        priorities.take_place(fixed, world, slot)
    _replace_in_queue(fixed, world, scratch, slot)


@compiled
def set_nice(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int, nice: int) -> None:
    """Change a pending job's nice value."""
    world.jobs[slot].nice = nice
    priorities.take_place(fixed, world, slot)
    _replace_in_queue(fixed, world, scratch, slot)


@compiled
def set_begin(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int, begin: int) -> None:
    """Change when a pending job may begin; what has passed stands for now. Its eligibility begins again."""
    job, now = world.jobs[slot], world.sim[0].now
    if job.begin == max(begin, now):
        return
    job.begin, job.eligible = max(begin, now), NEVER
    if begin > now:
        eligibility.schedule(world, begin, ON_BEGIN, slot)
    _replace_in_queue(fixed, world, scratch, slot)


@compiled
def set_node_list(fixed: Fixed, world: ControllerState, scratch: Scratch, slot: int, must: np.ndarray) -> None:
    """Change the nodes that a pending job submitted from outside must have; the empty set: any will do."""
    job = world.jobs[slot]
    bitsets.assign(world.bits[MUST_ROW + 2 * job.own], must)
    job.listed = bitsets.count(must)
    _replace_in_queue(fixed, world, scratch, slot)


@compiled
def start_on(
    fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, slot: int, chosen: np.ndarray
) -> bool:
    """Start a pending job on these nodes now, whatever limits and partitions say; False if they have no room."""
    priorities.before_change(fixed, world, scratch)
    room = scratch.bits[0]
    bitsets.assign(room, chosen)
    if nodes.keep_fitting(fixed, world, slot, room) < bitsets.count(chosen):
        return False
    priorities.remove(world, slot)
    lifecycle.start(fixed, world, record, slot, chosen)
    return True


@compiled
def look(fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, depth: int) -> None:
    """One pass now: of the main loop over so many jobs, or of backfill; use it on a copy."""
    if depth == BACKFILL:
        schedulers.run_backfill(fixed, world, scratch, record, False)
    else:
        schedulers.run_main(fixed, world, scratch, record, depth)


@compiled
def plan(fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord) -> None:
    """A full backfill pass that leaves every pending job's planned start; use it on a copy."""
    sim = world.sim[0]
    for i in range(sim.pending):
        world.jobs[world.pending[i]].expected = NEVER
    schedulers.run_backfill(fixed, world, scratch, record, True)


@compiled
def planned_start(
    fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, candidate: Candidate
) -> int:
    """When Slurm's plan would start a job submitted now; NEVER if not within its window. Use it on a copy."""
    if not engine.place_candidate(fixed, world, scratch, record, candidate):
        return NEVER
    own = world.sim[0].watch
    slot = world.own[own].slot
    plan(fixed, world, scratch, record)
    if world.own[own].start != NEVER:
        return world.own[own].start
    return world.jobs[slot].expected

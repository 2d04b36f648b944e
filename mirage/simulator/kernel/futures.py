"""Worlds that begin in the middle: put together from what a queue shows, and played on with sampled futures."""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import agenda, bitsets, eligibility, engine, lifecycle, limits, nodes, queue
from mirage.simulator.kernel.compile import compiled
from mirage.simulator.kernel.layout import (
    NEVER,
    NONE,
    ON_BEGIN,
    ON_CANCEL,
    ON_END,
    PENDING,
    RUNNING,
    Candidate,
    Fixed,
    Record,
    Scratch,
    World,
)


@compiled
def resume(
    fixed: Fixed, world: World, scratch: Scratch, rows: np.ndarray, needs: np.ndarray, slots: np.ndarray
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
def _run(fixed: Fixed, world: World, scratch: Scratch, slot: int) -> bool:
    """Have the job run on any nodes that fit; False if there are none."""
    job, usable, chosen, work = world.jobs[slot], scratch.bits[1], scratch.bits[2], scratch.bits[3]
    nodes.candidates(fixed, world, slot, usable)
    if nodes.keep_fitting(fixed, world, slot, usable) < job.nodes:
        return False
    nodes.choose(fixed, world, slot, usable, world.free, chosen, work)
    nodes.allocate(fixed, world, slot, chosen)
    job.status, job.reason, job.limit_end = RUNNING, NONE, job.start + job.limit
    job.end = job.limit_end
    limits.count_submitted(fixed, world, slot, 1)
    limits.count_running(fixed, world, slot, 1)
    lifecycle.insert_running(world, slot)
    return True


@compiled
def _wait(fixed: Fixed, world: World, slot: int) -> None:
    """Have the job wait; its age counts as the row says."""
    job = world.jobs[slot]
    job.status, job.reason = PENDING, NONE
    limits.count_submitted(fixed, world, slot, 1)
    queue.prioritise(fixed, world, slot, world.sim[0].now)
    queue.insert(world, slot)
    if job.begin > world.sim[0].now:
        agenda.schedule(world, job.begin, ON_BEGIN, slot)


@compiled
def impose(fixed: Fixed, world: World, slots: np.ndarray, runtimes: np.ndarray, cancels: np.ndarray) -> None:
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
            agenda.schedule(world, job.end, ON_END, slots[i])
        elif cancels[i] != NEVER:
            job.cancel_at = max(now, cancels[i])
            agenda.schedule(world, job.cancel_at, ON_CANCEL, slots[i])


@compiled
def future_starts(
    fixed: Fixed,
    base: World,
    run: World,
    work: World,
    scratch: Scratch,
    record: Record,
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

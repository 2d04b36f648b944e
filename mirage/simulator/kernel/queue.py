"""The pending queue: multifactor priorities (man slurm.conf, PriorityType=priority/multifactor) and order.

priority = weight * age factor + weight * fair-share factor + the factors that do not change - nice, at least 1
for a job that is not held. Age and fair share are those at the start of each
PriorityCalcPeriod, as slurmctld computes them.
Order: partition tier, priority, then the older first. slurmctld compares job ids for that. Here the ids of jobs
that are submitted from outside follow all ids of the trace, so the submission counts first.
First come, first served (priority/basic): each job gets the next lower number as it is submitted, as it is
released and as its nice value changes, less its nice value (slurmctld's ``priority_p_set``).
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import fairshare
from mirage.simulator.kernel.compile import compiled
from mirage.simulator.kernel.layout import NEVER, Fixed, Scratch, World


@compiled
def age_factor(fixed: Fixed, world: World, slot: int, at: int) -> float:
    """Time accrued until ``at`` over PriorityMaxAge, at most 1."""
    job, config = world.jobs[slot], fixed.config[0]
    if job.accrue == NEVER or config.max_age <= 0:
        return 0.0
    return min(1.0, max(0, at - job.accrue) / config.max_age)


@compiled
def take_place(fixed: Fixed, world: World, slot: int) -> None:
    """Put the job behind all that have a place, where jobs are served in turn; one that is held gets none."""
    sim, job = world.sim[0], world.jobs[slot]
    if fixed.config[0].in_turn == 0 or job.held == 1:
        return
    job.static = float(sim.lowest - 1)
    sim.lowest = min(sim.lowest, max(1, sim.lowest - 1 - job.nice))


@compiled
def prioritise(fixed: Fixed, world: World, slot: int, at: int) -> None:
    """Set the priority of one pending job as of ``at``."""
    job, config = world.jobs[slot], fixed.config[0]
    if job.held == 1:
        job.priority = 0
        return
    value = job.static + config.w_age * age_factor(fixed, world, slot, at)
    if config.w_fair_share != 0.0 and job.association >= 0:
        value += config.w_fair_share * world.associations[job.association].factor
    job.priority = max(1, np.int64(value) - job.nice)
    if config.w_age != 0.0 and job.accrue != NEVER:
        world.sim[0].cap_time = min(world.sim[0].cap_time, _next_change_of_pace(fixed, world, slot, value, at))


@compiled
def _next_change_of_pace(fixed: Fixed, world: World, slot: int, value: float, at: int) -> int:
    """From when the job's priority, ``value`` before nice, may move against that of jobs that age steadily.

    Its age begins to count, lifts a niced job from the least priority, or counts no further.
    """
    job, config = world.jobs[slot], fixed.config[0]
    end = job.accrue + config.max_age
    if job.accrue > world.sim[0].now:
        return at
    if job.nice <= 0 or np.int64(value) > job.nice:
        return end
    return min(end, at + np.int64((job.nice + 1 - value) * config.max_age / config.w_age))


@compiled
def _precedes(world: World, a: int, b: int) -> bool:
    x, y = world.jobs[a], world.jobs[b]
    if x.tier != y.tier:
        return x.tier > y.tier
    if x.priority != y.priority:
        return x.priority > y.priority
    return is_older(world, a, b)


@compiled
def is_older(world: World, a: int, b: int) -> bool:
    """Whether one job was submitted before another, also where one of them is not of the trace."""
    x, y = world.jobs[a], world.jobs[b]
    return x.submit < y.submit or (x.submit == y.submit and x.id < y.id)


@compiled
def insert(world: World, slot: int) -> None:
    """Put a pending job at its place."""
    sim, pending = world.sim[0], world.pending
    low, high = 0, sim.pending
    while low < high:
        middle = (low + high) >> 1
        if _precedes(world, slot, pending[middle]):
            high = middle
        else:
            low = middle + 1
    for i in range(sim.pending, low, -1):
        pending[i] = pending[i - 1]
    pending[low] = slot
    sim.pending += 1


@compiled
def remove(world: World, slot: int) -> None:
    """Take a job out of the queue."""
    sim, pending = world.sim[0], world.pending
    i = 0
    while pending[i] != slot:
        i += 1
    sim.pending -= 1
    for k in range(i, sim.pending):
        pending[k] = pending[k + 1]


@compiled
def _merge_sort(world: World, order: np.ndarray) -> None:
    n, pending = world.sim[0].pending, world.pending
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            i, j = low, middle
            for k in range(low, high):
                if i < middle and (j >= high or not _precedes(world, pending[j], pending[i])):
                    order[k] = pending[i]
                    i += 1
                else:
                    order[k] = pending[j]
                    j += 1
        for k in range(n):
            pending[k] = order[k]
        width *= 2


@compiled
def sort(world: World, order: np.ndarray) -> None:
    """Restore the order after priorities changed: insertion while nearly sorted, else a merge sort."""
    n, pending = world.sim[0].pending, world.pending
    budget = 8 * n
    for i in range(1, n):
        slot, k = pending[i], i
        while k > 0 and _precedes(world, slot, pending[k - 1]):
            pending[k] = pending[k - 1]
            k -= 1
        pending[k] = slot
        budget -= i - k
        if budget < 0:
            _merge_sort(world, order)
            return


@compiled
def refresh(fixed: Fixed, world: World, scratch: Scratch) -> None:
    """Recompute priorities, as of the start of this calculation period, if that was not done yet.

    When it is done within the period makes no difference, so it waits until the order is needed.
    """
    sim, config = world.sim[0], fixed.config[0]
    period = (sim.now - config.boot) // config.calc_period
    if period == sim.calculated:
        return
    sim.calculated, sim.cap_time = period, NEVER
    at = config.boot + period * config.calc_period
    if config.w_fair_share != 0.0:
        fairshare.recalculate(fixed, world, scratch, at)
    elif config.w_age == 0.0:
        return
    for i in range(sim.pending):
        prioritise(fixed, world, world.pending[i], at)
    sort(world, scratch.order)


@compiled
def before_change(fixed: Fixed, world: World, scratch: Scratch) -> None:
    """To be called before jobs start or end: usage as of the period's start must be read before it changes."""
    if fixed.config[0].w_fair_share != 0.0:
        refresh(fixed, world, scratch)

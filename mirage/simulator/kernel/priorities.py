"""The pending queue: multifactor priorities (man slurm.conf, PriorityType=priority/multifactor) and order.

priority = weight * age factor + weight * fair-share factor + the factors that do not change - nice, at least 1
for a job that is not held. Age and fair share are those at the start of each PriorityCalcPeriod, as slurmctld
computes them. Order: partition tier, priority, then the older first. slurmctld compares job ids for that. Here the
ids of jobs that are submitted from outside follow all ids of the trace, so the submission counts first.
First come, first served (priority/basic): each job gets the next lower number as it is submitted, as it is
released and as its nice value changes, less its nice value (slurmctld's ``priority_p_set``).

Fair share is decayed usage over the account tree, and the factor that it gives each association. Sources: Slurm's
pages on the Classic Fairshare Algorithm and on the Fair Tree Fairshare Algorithm. Usage is kept as a value at a
time and a rate, so that decay is exact at any time and an event costs one walk to the root: with decay constant
d = ln 2 / half-life, U(t) = U(s) exp(-d (t - s)) + rate (1 - exp(-d (t - s))) / d.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel.compile import compiled
from mirage.simulator.kernel.layout import NEVER, ControllerState, Fixed, Scratch


@compiled
def _settle(associations: np.ndarray, a: int, at: int, decay: float) -> None:
    """Bring the usage of association ``a`` up to the time ``at``."""
    row = associations[a]
    elapsed = at - row.at
    if elapsed > 0:
        if decay > 0.0:
            kept = np.exp(-decay * elapsed)
            row.usage = row.usage * kept + row.rate * (1.0 - kept) / decay
        else:
            row.usage += row.rate * elapsed
        row.at = at


@compiled
def change_rate(fixed: Fixed, world: ControllerState, association: int, billing: float) -> None:
    """Add ``billing`` (usage per second; negative at a job's end) to an association and its ancestors."""
    a = association
    while a >= 0:
        _settle(world.associations, a, world.sim[0].now, fixed.config[0].decay)
        world.associations[a].rate += billing
        a = world.associations[a].parent


@compiled
def _classic(fixed: Fixed, world: ControllerState) -> None:
    """F = 2 ** -(UE / S / damping), UE(child) = U + (UE(parent) - U) * share among siblings."""
    rows, root = world.associations, fixed.config[0].root
    total = rows[root].usage
    for a in range(rows.shape[0]):  # parents stand before their children
        row = rows[a]
        if a == root:
            row.level = 1.0 if total > 0.0 else 0.0
            continue
        used = row.usage / total if total > 0.0 else 0.0
        parent = rows[row.parent]
        row.level = used if row.parent == root else used + (parent.level - used) * row.shares
        if row.normal <= 0.0:
            row.factor = 0.0
        else:
            row.factor = 2.0 ** -(row.level / row.normal / fixed.config[0].dampening)


@compiled
def _level_fair_share(rows: np.ndarray, a: int) -> float:
    """LF = share among siblings / usage among siblings; unused: infinite; no shares: 0."""
    row = rows[a]
    if row.shares <= 0.0:
        return 0.0
    total = rows[row.parent].usage
    if row.usage <= 0.0 or total <= 0.0:
        return np.inf
    return row.shares / (row.usage / total)


@compiled
def _sorted_children(rows: np.ndarray, parent: int, stack: np.ndarray, top: int) -> int:
    """Push the children of ``parent`` on the stack, the best level last; returns the new top."""
    base = top
    child = rows[parent].first_child
    while child >= 0:
        i = top
        level = rows[child].level
        # Users stand before accounts of the same level, as Slurm ranks them.
        while i > base and (
            rows[stack[i - 1]].level > level
            or (rows[stack[i - 1]].level == level and rows[stack[i - 1]].user > rows[child].user)
        ):
            stack[i] = stack[i - 1]
            i -= 1
        stack[i] = child
        top += 1
        child = rows[child].next_sibling
    return top


@compiled
def _fair_tree(fixed: Fixed, world: ControllerState, scratch: Scratch) -> None:
    """Rank users by a depth-first walk, best level first; F = rank / users, equal siblings equal rank."""
    rows, users = world.associations, fixed.config[0].users_in_tree
    for a in range(rows.shape[0]):
        if a != fixed.config[0].root:
            rows[a].level = _level_fair_share(rows, a)
    stack = scratch.stack
    top = _sorted_children(rows, fixed.config[0].root, stack, 0)
    position, rank = users, users
    last_parent, last_level = -1, -1.0
    while top > 0:
        top -= 1
        a = stack[top]
        row = rows[a]
        if row.user == 1:
            if row.parent != last_parent or row.level != last_level:
                rank = position
            row.factor = rank / users
            position -= 1
            last_parent, last_level = row.parent, row.level
        else:
            last_parent = -1
            top = _sorted_children(rows, a, stack, top)


@compiled
def recalculate(fixed: Fixed, world: ControllerState, scratch: Scratch, at: int) -> None:
    """Recompute every association's fair-share factor as of ``at``; no job has started or ended since."""
    for a in range(world.associations.shape[0]):
        _settle(world.associations, a, at, fixed.config[0].decay)
    if fixed.config[0].fair_share == 1:
        _classic(fixed, world)
    elif fixed.config[0].fair_share == 2:
        _fair_tree(fixed, world, scratch)


@compiled
def age_factor(fixed: Fixed, world: ControllerState, slot: int, at: int) -> float:
    """Time accrued until ``at`` over PriorityMaxAge, at most 1."""
    job, config = world.jobs[slot], fixed.config[0]
    if job.accrue == NEVER or config.max_age <= 0:
        return 0.0
    return min(1.0, max(0, at - job.accrue) / config.max_age)


@compiled
def take_place(fixed: Fixed, world: ControllerState, slot: int) -> None:
    """Put the job behind all that have a place, where jobs are served in turn; one that is held gets none."""
    sim, job = world.sim[0], world.jobs[slot]
    if fixed.config[0].in_turn == 0 or job.held == 1:
        return
    job.static = float(sim.lowest - 1)
    sim.lowest = min(sim.lowest, max(1, sim.lowest - 1 - job.nice))


@compiled
def prioritise(fixed: Fixed, world: ControllerState, slot: int, at: int) -> None:
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
def _next_change_of_pace(fixed: Fixed, world: ControllerState, slot: int, value: float, at: int) -> int:
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
def _precedes(world: ControllerState, a: int, b: int) -> bool:
    x, y = world.jobs[a], world.jobs[b]
    if x.tier != y.tier:
        return x.tier > y.tier
    if x.priority != y.priority:
        return x.priority > y.priority
    return is_older(world, a, b)


@compiled
def is_older(world: ControllerState, a: int, b: int) -> bool:
    """Whether one job was submitted before another, also where one of them is not of the trace."""
    x, y = world.jobs[a], world.jobs[b]
    return x.submit < y.submit or (x.submit == y.submit and x.id < y.id)


@compiled
def insert(world: ControllerState, slot: int) -> None:
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
def remove(world: ControllerState, slot: int) -> None:
    """Take a job out of the queue."""
    sim, pending = world.sim[0], world.pending
    i = 0
    while pending[i] != slot:
        i += 1
    sim.pending -= 1
    for k in range(i, sim.pending):
        pending[k] = pending[k + 1]


@compiled
def _merge_sort(world: ControllerState, order: np.ndarray) -> None:
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
def sort(world: ControllerState, order: np.ndarray) -> None:
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
def refresh(fixed: Fixed, world: ControllerState, scratch: Scratch) -> None:
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
        recalculate(fixed, world, scratch, at)
    elif config.w_age == 0.0:
        return
    for i in range(sim.pending):
        prioritise(fixed, world, world.pending[i], at)
    sort(world, scratch.order)


@compiled
def before_change(fixed: Fixed, world: ControllerState, scratch: Scratch) -> None:
    """To be called before jobs start or end: usage as of the period's start must be read before it changes."""
    if fixed.config[0].w_fair_share != 0.0:
        refresh(fixed, world, scratch)

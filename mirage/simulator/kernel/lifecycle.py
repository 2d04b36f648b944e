"""A job's life: submitted, eligible, started, ended; what its end means for those that depend on it.

Every limit of Slurm that is checked when a job would start (MaxJobs, GrpJobs, GrpTRES, MaxTRESPerUser, an array's
``%`` throttle...) is a group of jobs with ceilings on jobs and resources in use; a job belongs to up to
``GROUPS_PER_JOB`` groups and is counted in them as it comes and goes.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import bitsets, eligibility, nodes, priorities
from mirage.simulator.kernel.compile import compiled, inlined
from mirage.simulator.kernel.layout import (
    CANCELLED,
    FIRST_LIMIT,
    FREE,
    G_JOBS,
    G_MAX_JOBS,
    G_SUBMIT,
    G_SUBMITS,
    G_TRES,
    GROUPS_PER_JOB,
    LIMIT_CODES,
    LOG_CANCEL,
    LOG_END,
    LOG_REQUEUE,
    LOG_START,
    LOG_SUBMIT,
    MUST_ROW,
    NEVER,
    NODE_DOWN,
    NODE_FAIL,
    NONE,
    ON_BEGIN,
    ON_CANCEL,
    ON_END,
    PENDING,
    PLACE_ROW,
    RUNNING,
    SINCE_SUBMISSION,
    TIMEOUT,
    Candidate,
    ControllerState,
    Fixed,
    KernelRecord,
    Scratch,
)


@inlined
def obstacle(fixed: Fixed, world: ControllerState, slot: int) -> int:
    """The reason of the first limit that keeps the job from starting, NONE if there is none.

    FIRST_LIMIT + group * LIMIT_CODES, + 0 for its ceiling on jobs, + 1 + r for that on resource r.
    """
    resources = fixed.config[0].resources + 1
    total = resources - 1
    first = total + resources
    for k in range(GROUPS_PER_JOB):
        g = world.needs[slot, first + k]
        if g < 0:
            break
        group = world.groups[g]
        if group[G_MAX_JOBS] >= 0 and group[G_JOBS] >= group[G_MAX_JOBS]:
            return FIRST_LIMIT + g * LIMIT_CODES
        for r in range(resources):
            ceiling = group[G_TRES + r]
            if ceiling >= 0 and group[G_TRES + resources + r] + world.needs[slot, total + r] > ceiling:
                return FIRST_LIMIT + g * LIMIT_CODES + 1 + r
    return NONE


@compiled
def count_running(fixed: Fixed, world: ControllerState, slot: int, sign: int) -> None:
    """Add (+1) or take away (-1) a running job's use from its groups."""
    resources = fixed.config[0].resources + 1
    total = resources - 1
    first = total + resources
    for k in range(GROUPS_PER_JOB):
        g = world.needs[slot, first + k]
        if g < 0:
            break
        world.groups[g, G_JOBS] += sign
        for r in range(resources):
            world.groups[g, G_TRES + resources + r] += sign * world.needs[slot, total + r]


@compiled
def count_submitted(fixed: Fixed, world: ControllerState, slot: int, sign: int) -> None:
    """Add or take away a job from its groups' jobs in the queue (pending and running)."""
    first = 2 * fixed.config[0].resources + 1
    for k in range(GROUPS_PER_JOB):
        g = world.needs[slot, first + k]
        if g < 0:
            break
        world.groups[g, G_SUBMITS] += sign


@inlined
def may_submit(fixed: Fixed, world: ControllerState, slot: int) -> bool:
    """Whether MaxSubmitJobs of every group allows one more."""
    first = 2 * fixed.config[0].resources + 1
    for k in range(GROUPS_PER_JOB):
        g = world.needs[slot, first + k]
        if g < 0:
            break
        if 0 <= world.groups[g, G_SUBMIT] <= world.groups[g, G_SUBMITS]:
            return False
    return True


@compiled
def note(world: ControllerState, record: KernelRecord, kind: int, slot: int, state: int) -> None:
    """Write one line of the event log, where there is one."""
    sim = world.sim[0]
    if sim.log < record.log.shape[0]:
        line = record.log[sim.log]
        line.time, line.kind, line.id, line.state = sim.now, kind, world.jobs[slot].id, state
        sim.log += 1


@compiled
def new_slot(world: ControllerState) -> int:
    """A free job slot; its generation tells its jobs apart."""
    sim = world.sim[0]
    slot = sim.free_slot
    if slot >= 0:
        sim.free_slot = world.jobs[slot].next_free
        return slot
    sim.slots += 1
    return sim.slots - 1


@compiled
def free_slot(world: ControllerState, slot: int) -> None:
    """Give a finished job's slot back."""
    job = world.jobs[slot]
    job.status, job.generation = FREE, job.generation + 1
    job.next_free = world.sim[0].free_slot
    world.sim[0].free_slot = slot


@compiled
def admit(fixed: Fixed, world: ControllerState, scratch: Scratch, candidate: Candidate) -> int:
    """A slot filled with a job submitted from outside, not yet entered; -1 if a limit rejects the job."""
    sim = world.sim[0]
    priorities.before_change(fixed, world, scratch)
    slot = new_slot(world)
    bitsets.assign(world.needs[slot], candidate.needs)
    if not may_submit(fixed, world, slot):
        free_slot(world, slot)
        return -1
    generation = world.jobs[slot].generation
    world.jobs[slot] = candidate.job[0]
    entry = world.jobs[slot]
    entry.generation, entry.id, entry.own, entry.submit = generation, sim.next_id, sim.own, sim.now
    own = world.own[sim.own]
    own.id, own.slot, own.generation, own.status = sim.next_id, slot, generation, PENDING
    own.submit, own.start, own.end = sim.now, NEVER, NEVER
    own.reason, own.exit_code, own.requeues = 0, 0, 0
    bitsets.assign(world.bits[MUST_ROW + 2 * sim.own], candidate.must)
    world.bits[PLACE_ROW + 2 * sim.own][:] = bitsets.ZERO
    sim.own += 1
    sim.next_id += 1
    return slot


@compiled
def first_accrual(fixed: Fixed, world: ControllerState) -> int:
    """From when the age of a job submitted or requeued now counts, where that does not depend on anything else."""
    return world.sim[0].now if fixed.config[0].ageing == SINCE_SUBMISSION else NEVER


@compiled
def enter(fixed: Fixed, world: ControllerState, record: KernelRecord, slot: int) -> None:
    """A job filled into ``slot`` joins the queue (limits on submission were checked)."""
    sim, job = world.sim[0], world.jobs[slot]
    job.status, job.start, job.end, job.expected = PENDING, NEVER, NEVER, NEVER
    job.eligible, job.accrue, job.first_alloc = NEVER, first_accrual(fixed, world), -1
    count_submitted(fixed, world, slot, 1)
    if job.singleton == 1:
        sim.singletons += 1
        eligibility.settle_singleton(world, slot)
    eligibility.settle_eligibility(fixed, world, slot)
    priorities.take_place(fixed, world, slot)
    priorities.prioritise(fixed, world, slot, sim.now)
    priorities.insert(world, slot)
    if job.begin > sim.now:
        eligibility.schedule(world, job.begin, ON_BEGIN, slot)
    if job.cancel_at != NEVER:
        eligibility.schedule(world, max(job.cancel_at, sim.now), ON_CANCEL, slot)
    note(world, record, LOG_SUBMIT, slot, PENDING)
    eligibility.wake(fixed, world)


@compiled
def start(fixed: Fixed, world: ControllerState, record: KernelRecord, slot: int, chosen: np.ndarray) -> None:
    """Start a pending job on the nodes ``chosen``; the caller takes it out of the queue."""
    sim, job = world.sim[0], world.jobs[slot]
    nodes.allocate(fixed, world, slot, chosen)
    if job.own >= 0:
        bitsets.assign(world.bits[PLACE_ROW + 2 * job.own], chosen)
    job.status, job.start, job.limit_end, job.reason = RUNNING, sim.now, sim.now + job.limit, NONE
    allowed = job.limit + fixed.partitions[job.partition].over
    job.end = sim.now + min(job.runtime, allowed)
    eligibility.schedule(world, job.end, ON_END, slot)
    count_running(fixed, world, slot, 1)
    if fixed.config[0].w_fair_share != 0.0 and job.association >= 0:
        priorities.change_rate(fixed, world, job.association, job.billing)
    insert_running(world, slot)
    _report_start(world, record, slot)
    eligibility.meet_dependents(fixed, world, slot)


@compiled
def insert_running(world: ControllerState, slot: int) -> None:
    """Put a running job at its place in the order of limits."""
    sim, running, due = world.sim[0], world.running, world.jobs[slot].limit_end
    i = sim.running
    while i > 0 and world.jobs[running[i - 1]].limit_end > due:
        running[i] = running[i - 1]
        i -= 1
    running[i] = slot
    sim.running += 1


@compiled
def _remove_running(world: ControllerState, slot: int) -> None:
    sim, running, due = world.sim[0], world.running, world.jobs[slot].limit_end
    low, high = 0, sim.running
    while low < high:
        middle = (low + high) >> 1
        if world.jobs[running[middle]].limit_end < due:
            low = middle + 1
        else:
            high = middle
    while running[low] != slot:
        low += 1
    sim.running -= 1
    for k in range(low, sim.running):
        running[k] = running[k + 1]


@compiled
def _report_start(world: ControllerState, record: KernelRecord, slot: int) -> None:
    sim, job = world.sim[0], world.jobs[slot]
    if 0 <= job.row < record.results.shape[0]:
        record.results[job.row].start = sim.now
        record.results[job.row].state = RUNNING
    if job.own >= 0:
        world.own[job.own].start = sim.now
        world.own[job.own].status = RUNNING
    if world.waits.shape[0] > 0:
        wait = world.waits[sim.started % world.waits.shape[0]]
        since = job.submit if job.eligible == NEVER else max(job.submit, job.eligible)
        wait.start, wait.wait, wait.nodes = sim.now, sim.now - since, job.nodes
        wait.limit, wait.partition = job.limit, job.partition
    sim.started += 1
    note(world, record, LOG_START, slot, RUNNING)


@compiled
def finish(fixed: Fixed, world: ControllerState, record: KernelRecord, slot: int, state: int) -> None:
    """A job leaves the queue in ``state``: resources, counts, results, dependents; its slot is freed."""
    sim, job = world.sim[0], world.jobs[slot]
    exit_code = job.exit_code if state not in (TIMEOUT, CANCELLED, NODE_FAIL) else 0
    if job.status == RUNNING:
        stop(fixed, world, slot)
    else:
        priorities.remove(world, slot)
        if job.singleton == 1:
            sim.singletons -= 1
    count_submitted(fixed, world, slot, -1)
    if 0 <= job.row < record.results.shape[0]:
        record.results[job.row].end = sim.now
        record.results[job.row].state = state
    if job.own >= 0:
        own = world.own[job.own]
        own.status, own.end, own.exit_code, own.reason = state, sim.now, exit_code, job.reason
    note(world, record, LOG_CANCEL if state == CANCELLED else LOG_END, slot, state)
    eligibility.release_dependents(fixed, world, slot, state, exit_code)
    user, name = job.user, job.name
    free_slot(world, slot)
    if sim.singletons > 0:
        eligibility.wake_series(fixed, world, user, name)
    eligibility.wake(fixed, world)


@compiled
def stop(fixed: Fixed, world: ControllerState, slot: int) -> None:
    """Take a running job off its nodes."""
    nodes.release(fixed, world, slot)
    _remove_running(world, slot)
    count_running(fixed, world, slot, -1)
    job = world.jobs[slot]
    if fixed.config[0].w_fair_share != 0.0 and job.association >= 0:
        priorities.change_rate(fixed, world, job.association, -job.billing)


@compiled
def end_by_itself(fixed: Fixed, world: ControllerState, record: KernelRecord, slot: int) -> None:
    """A running job reached its own end or its limit."""
    job = world.jobs[slot]
    allowed = job.limit + fixed.partitions[job.partition].over
    finish(fixed, world, record, slot, TIMEOUT if job.runtime > allowed else job.outcome)


@compiled
def lose_node(fixed: Fixed, world: ControllerState, record: KernelRecord, slot: int) -> None:
    """A node under a running job went down: requeue it if it may be, else it ends as NODE_FAIL."""
    sim, job = world.sim[0], world.jobs[slot]
    if job.requeue == 0:
        finish(fixed, world, record, slot, NODE_FAIL)
        return
    stop(fixed, world, slot)
    job.generation += 1  # voids the end on the agenda; dependents refer to the slot, not the generation
    job.status, job.start, job.end = PENDING, NEVER, NEVER
    job.eligible, job.accrue = NEVER, first_accrual(fixed, world)
    if job.own >= 0:
        own = world.own[job.own]
        own.status, own.start, own.generation, own.requeues = PENDING, NEVER, job.generation, own.requeues + 1
    if 0 <= job.row < record.results.shape[0]:
        record.results[job.row].start = NEVER
        record.results[job.row].state = PENDING
    eligibility.settle_eligibility(fixed, world, slot)
    priorities.prioritise(fixed, world, slot, sim.now)
    priorities.insert(world, slot)
    note(world, record, LOG_REQUEUE, slot, PENDING)
    eligibility.wake(fixed, world)


@compiled
def change_node(fixed: Fixed, world: ControllerState, record: KernelRecord, node: int, state: int) -> None:
    """Set a node's state; what runs on a node that goes down is lost or requeued."""
    nodes.set_state(fixed, world, node, state)
    if state == NODE_DOWN:
        a = 0
        while a < world.sim[0].allocs:
            entry = world.allocs[a]
            if entry.slot >= 0 and entry.node == node:
                lose_node(fixed, world, record, entry.slot)
            a += 1
    eligibility.wake(fixed, world)


@compiled
def change_nodes(
    fixed: Fixed, world: ControllerState, record: KernelRecord, chosen: np.ndarray, state: int
) -> None:
    """``change_node`` for every node of a set."""
    node = bitsets.next_member(chosen, 0)
    while node >= 0:
        change_node(fixed, world, record, node, state)
        node = bitsets.next_member(chosen, node + 1)

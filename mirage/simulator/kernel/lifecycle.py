"""A job's life: submitted, eligible, started, ended; what its end means for those that depend on it."""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import agenda, bitsets, dependencies, eligibility, fairshare, limits, nodes, queue
from mirage.simulator.kernel.compile import compiled
from mirage.simulator.kernel.layout import (
    CANCELLED,
    FREE,
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
    Fixed,
    Record,
    Scratch,
    World,
)


@compiled
def note(world: World, record: Record, kind: int, slot: int, state: int) -> None:
    """Write one line of the event log, where there is one."""
    sim = world.sim[0]
    if sim.log < record.log.shape[0]:
        line = record.log[sim.log]
        line.time, line.kind, line.id, line.state = sim.now, kind, world.jobs[slot].id, state
        sim.log += 1


@compiled
def new_slot(world: World) -> int:
    """A free job slot; its generation tells its jobs apart."""
    sim = world.sim[0]
    slot = sim.free_slot
    if slot >= 0:
        sim.free_slot = world.jobs[slot].next_free
        return slot
    sim.slots += 1
    return sim.slots - 1


@compiled
def free_slot(world: World, slot: int) -> None:
    """Give a finished job's slot back."""
    job = world.jobs[slot]
    job.status, job.generation = FREE, job.generation + 1
    job.next_free = world.sim[0].free_slot
    world.sim[0].free_slot = slot


@compiled
def admit(fixed: Fixed, world: World, scratch: Scratch, candidate: Candidate) -> int:
    """A slot filled with a job submitted from outside, not yet entered; -1 if a limit rejects the job."""
    sim = world.sim[0]
    queue.before_change(fixed, world, scratch)
    slot = new_slot(world)
    bitsets.assign(world.needs[slot], candidate.needs)
    if not limits.may_submit(fixed, world, slot):
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
def first_accrual(fixed: Fixed, world: World) -> int:
    """From when the age of a job submitted or requeued now counts, where that does not depend on anything else."""
    return world.sim[0].now if fixed.config[0].ageing == SINCE_SUBMISSION else NEVER


@compiled
def enter(fixed: Fixed, world: World, record: Record, slot: int) -> None:
    """A job filled into ``slot`` joins the queue (limits on submission were checked)."""
    sim, job = world.sim[0], world.jobs[slot]
    job.status, job.start, job.end, job.expected = PENDING, NEVER, NEVER, NEVER
    job.eligible, job.accrue, job.first_alloc = NEVER, first_accrual(fixed, world), -1
    limits.count_submitted(fixed, world, slot, 1)
    if job.singleton == 1:
        sim.singletons += 1
        eligibility.settle_singleton(world, slot)
    eligibility.settle_eligibility(fixed, world, slot)
    queue.take_place(fixed, world, slot)
    queue.prioritise(fixed, world, slot, sim.now)
    queue.insert(world, slot)
    if job.begin > sim.now:
        agenda.schedule(world, job.begin, ON_BEGIN, slot)
    if job.cancel_at != NEVER:
        agenda.schedule(world, max(job.cancel_at, sim.now), ON_CANCEL, slot)
    note(world, record, LOG_SUBMIT, slot, PENDING)
    eligibility.wake(fixed, world)


@compiled
def start(fixed: Fixed, world: World, record: Record, slot: int, chosen: np.ndarray) -> None:
    """Start a pending job on the nodes ``chosen``; the caller takes it out of the queue."""
    sim, job = world.sim[0], world.jobs[slot]
    nodes.allocate(fixed, world, slot, chosen)
    if job.own >= 0:
        bitsets.assign(world.bits[PLACE_ROW + 2 * job.own], chosen)
    job.status, job.start, job.limit_end, job.reason = RUNNING, sim.now, sim.now + job.limit, NONE
    allowed = job.limit + fixed.partitions[job.partition].over
    job.end = sim.now + min(job.runtime, allowed)
    agenda.schedule(world, job.end, ON_END, slot)
    limits.count_running(fixed, world, slot, 1)
    if fixed.config[0].w_fair_share != 0.0 and job.association >= 0:
        fairshare.change_rate(fixed, world, job.association, job.billing)
    insert_running(world, slot)
    _report_start(world, record, slot)
    dependencies.meet_dependents(fixed, world, slot)


@compiled
def insert_running(world: World, slot: int) -> None:
    """Put a running job at its place in the order of limits."""
    sim, running, due = world.sim[0], world.running, world.jobs[slot].limit_end
    i = sim.running
    while i > 0 and world.jobs[running[i - 1]].limit_end > due:
        running[i] = running[i - 1]
        i -= 1
    running[i] = slot
    sim.running += 1


@compiled
def _remove_running(world: World, slot: int) -> None:
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
def _report_start(world: World, record: Record, slot: int) -> None:
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
def finish(fixed: Fixed, world: World, record: Record, slot: int, state: int) -> None:
    """A job leaves the queue in ``state``: resources, counts, results, dependents; its slot is freed."""
    sim, job = world.sim[0], world.jobs[slot]
    exit_code = job.exit_code if state not in (TIMEOUT, CANCELLED, NODE_FAIL) else 0
    if job.status == RUNNING:
        stop(fixed, world, slot)
    else:
        queue.remove(world, slot)
        if job.singleton == 1:
            sim.singletons -= 1
    limits.count_submitted(fixed, world, slot, -1)
    if 0 <= job.row < record.results.shape[0]:
        record.results[job.row].end = sim.now
        record.results[job.row].state = state
    if job.own >= 0:
        own = world.own[job.own]
        own.status, own.end, own.exit_code, own.reason = state, sim.now, exit_code, job.reason
    note(world, record, LOG_CANCEL if state == CANCELLED else LOG_END, slot, state)
    dependencies.release_dependents(fixed, world, slot, state, exit_code)
    user, name = job.user, job.name
    free_slot(world, slot)
    if sim.singletons > 0:
        eligibility.wake_series(fixed, world, user, name)
    eligibility.wake(fixed, world)


@compiled
def stop(fixed: Fixed, world: World, slot: int) -> None:
    """Take a running job off its nodes."""
    nodes.release(fixed, world, slot)
    _remove_running(world, slot)
    limits.count_running(fixed, world, slot, -1)
    job = world.jobs[slot]
    if fixed.config[0].w_fair_share != 0.0 and job.association >= 0:
        fairshare.change_rate(fixed, world, job.association, -job.billing)


@compiled
def end_by_itself(fixed: Fixed, world: World, record: Record, slot: int) -> None:
    """A running job reached its own end or its limit."""
    job = world.jobs[slot]
    allowed = job.limit + fixed.partitions[job.partition].over
    finish(fixed, world, record, slot, TIMEOUT if job.runtime > allowed else job.outcome)


@compiled
def lose_node(fixed: Fixed, world: World, record: Record, slot: int) -> None:
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
    queue.prioritise(fixed, world, slot, sim.now)
    queue.insert(world, slot)
    note(world, record, LOG_REQUEUE, slot, PENDING)
    eligibility.wake(fixed, world)


@compiled
def change_node(fixed: Fixed, world: World, record: Record, node: int, state: int) -> None:
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
def change_nodes(fixed: Fixed, world: World, record: Record, chosen: np.ndarray, state: int) -> None:
    """``change_node`` for every node of a set."""
    node = bitsets.next_member(chosen, 0)
    while node >= 0:
        change_node(fixed, world, record, node, state)
        node = bitsets.next_member(chosen, node + 1)

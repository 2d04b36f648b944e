"""The event loop: from one thing that is due to the next, never by ticks.

At one time: jobs end, leave or become eligible; then what was known in advance happens (reservations,
nodes); then jobs arrive; then the main loop and backfill run if they are due.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import bitsets, eligibility, lifecycle, priorities, schedulers
from mirage.simulator.kernel.compile import compiled, inlined
from mirage.simulator.kernel.layout import (
    CANCELLED,
    DONE,
    DRAIN,
    MUST_ROW,
    NEED_SPACE,
    NEVER,
    NODE_DOWN,
    NODES_DOWN,
    NODES_DRAIN,
    NODES_RESUME,
    ON_BEGIN,
    ON_CANCEL,
    ON_DEPENDENCY,
    ON_END,
    ON_NOTICE,
    PENDING,
    RUNNING,
    UP,
    WATCHED,
    Candidate,
    ControllerState,
    Fixed,
    KernelRecord,
    Scratch,
)

ENDLESS = np.int64(1) << 60


@compiled
def next_time(fixed: Fixed, world: ControllerState) -> int:
    """When the next thing is due; NEVER if nothing is."""
    sim = world.sim[0]
    time = min(sim.main_due, sim.full_due, sim.backfill_due, sim.review_due)
    if sim.agenda > 0:
        time = min(time, world.agenda[0].time)
    if sim.next_arrival < fixed.arrivals.shape[0]:
        time = min(time, fixed.arrivals[sim.next_arrival].submit)
    if sim.next_timeline < fixed.timeline.shape[0]:
        time = min(time, fixed.timeline[sim.next_timeline].time)
    return time


@compiled
def _has_space(fixed: Fixed, world: ControllerState, record: KernelRecord) -> bool:
    """Whether the tables hold what one more time may add; the caller grows them otherwise."""
    sim = world.sim[0]
    arrivals = np.int64(0)
    while sim.next_arrival + arrivals < fixed.arrivals.shape[0] and (
        fixed.arrivals[sim.next_arrival + arrivals].submit <= sim.now
    ):
        arrivals += 1
    slots = sim.slots + arrivals < world.jobs.shape[0]
    due = sim.agenda + 3 * (arrivals + sim.pending) + sim.deps + 4 < world.agenda.shape[0]
    return (
        slots and due and (record.log.shape[0] == 0 or sim.log + 4 * (sim.slots + arrivals) < record.log.shape[0])
    )


@compiled
def _handle_agenda(fixed: Fixed, world: ControllerState, record: KernelRecord) -> None:
    sim = world.sim[0]
    while sim.agenda > 0 and world.agenda[0].time <= sim.now:
        entry = world.agenda[0]
        kind, slot, generation = entry.kind, entry.slot, entry.generation
        eligibility.drop_first(world)
        job = world.jobs[slot]
        if job.generation != generation:
            continue
        sim.events += 1
        if kind == ON_END and job.status == RUNNING:
            lifecycle.end_by_itself(fixed, world, record, slot)
        elif kind == ON_CANCEL:  # pending, or started earlier than in the trace: its user cancels it all the same
            lifecycle.finish(fixed, world, record, slot, CANCELLED)
        elif kind == ON_BEGIN and job.status == PENDING:
            eligibility.await_notice(fixed, world, slot, sim.now)
        elif kind == ON_DEPENDENCY and job.status == PENDING:
            eligibility.close_unnoticed(fixed, world, slot, sim.now)
        elif kind == ON_NOTICE and job.status == PENDING and job.eligible == NEVER:
            eligibility.settle_eligibility(fixed, world, slot)
            eligibility.wake(fixed, world)


@compiled
def _handle_timeline(fixed: Fixed, world: ControllerState, record: KernelRecord) -> None:
    sim = world.sim[0]
    while sim.next_timeline < fixed.timeline.shape[0] and fixed.timeline[sim.next_timeline].time <= sim.now:
        entry = fixed.timeline[sim.next_timeline]
        sim.next_timeline += 1
        if entry.kind == NODES_DOWN:
            lifecycle.change_nodes(fixed, world, record, fixed.masks[entry.mask], NODE_DOWN)
        elif entry.kind == NODES_DRAIN:
            lifecycle.change_nodes(fixed, world, record, fixed.masks[entry.mask], DRAIN)
        elif entry.kind == NODES_RESUME:
            lifecycle.change_nodes(fixed, world, record, fixed.masks[entry.mask], UP)
        eligibility.wake(fixed, world)


@compiled
def fill_slot(fixed: Fixed, world: ControllerState, arrival: int) -> int:
    """Copy an arrival into a free slot; returns the slot. One without an id gets the next one."""
    slot = lifecycle.new_slot(world)
    generation = world.jobs[slot].generation
    world.jobs[slot] = fixed.arrivals[arrival]
    world.jobs[slot].generation = generation
    if world.jobs[slot].id < 0:
        world.jobs[slot].id = world.sim[0].next_id
        world.sim[0].next_id += 1
    bitsets.assign(world.needs[slot], fixed.arrival_needs[arrival])
    return slot


@compiled
def _handle_arrivals(fixed: Fixed, world: ControllerState, record: KernelRecord) -> None:
    sim = world.sim[0]
    while sim.next_arrival < fixed.arrivals.shape[0]:
        arrival = sim.next_arrival
        if fixed.arrivals[arrival].submit > sim.now:
            break
        sim.next_arrival += 1
        sim.events += 1
        slot = fill_slot(fixed, world, arrival)
        if lifecycle.may_submit(fixed, world, slot):
            lifecycle.enter(fixed, world, record, slot)
            continue
        sim.rejected += 1
        row = world.jobs[slot].row
        if 0 <= row < record.results.shape[0]:
            record.results[row].end = sim.now
            record.results[row].state = CANCELLED
        lifecycle.free_slot(world, slot)


@compiled
def _run_schedulers(fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord) -> None:
    sim, config = world.sim[0], fixed.config[0]
    if sim.main_due <= sim.now or sim.full_due <= sim.now:
        depth = ENDLESS if sim.full_due <= sim.now else config.default_queue_depth
        sim.main_due, sim.full_due, sim.last_main = NEVER, NEVER, sim.now
        if schedulers.run_main(fixed, world, scratch, record, depth):
            sim.full_due = eligibility.next_tick(config.boot, config.sched_interval, sim.now + 1)
    if min(sim.backfill_due, sim.review_due) <= sim.now:
        sim.backfill_due, sim.last_backfill = NEVER, sim.now
        schedulers.run_backfill(fixed, world, scratch, record, False)
        sim.review_due = _next_review(fixed, world)


@compiled
def _next_review(fixed: Fixed, world: ControllerState) -> int:
    """When the order of the queue may next change while nothing happens: priorities are computed again."""
    sim, config = world.sim[0], fixed.config[0]
    if sim.pending == 0 or sim.idle == 0 or (config.w_fair_share == 0.0 and sim.cap_time == NEVER):
        return NEVER
    first = sim.now + 1 if config.w_fair_share != 0.0 else max(sim.now + 1, sim.cap_time)
    period = eligibility.next_tick(config.boot, config.calc_period, first)
    return eligibility.next_tick(config.boot, config.bf_interval, period)


@compiled
def advance(fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, until: int) -> int:
    """Handle everything due at or before ``until`` and set the clock to it.

    Returns DONE; WATCHED as soon as the watched own job has started (the clock stays there); NEED_SPACE when a
    table is full: nothing is lost, grow the tables and call again.
    """
    sim = world.sim[0]
    while True:
        time = next_time(fixed, world)
        if time > until:
            sim.now = max(sim.now, until)
            return DONE
        sim.now = max(sim.now, time)
        if not _has_space(fixed, world, record):
            return NEED_SPACE
        priorities.before_change(fixed, world, scratch)
        _handle_agenda(fixed, world, record)
        _handle_timeline(fixed, world, record)
        _handle_arrivals(fixed, world, record)
        _run_schedulers(fixed, world, scratch, record)
        if sim.watch >= 0 and world.own[sim.watch].start != NEVER:
            return WATCHED


@inlined
def _nothing_else_is_due(fixed: Fixed, world: ControllerState) -> bool:
    sim = world.sim[0]
    return (
        min(sim.main_due, sim.full_due, sim.backfill_due) == NEVER
        and sim.agenda == 0
        and sim.next_arrival == fixed.arrivals.shape[0]
        and sim.next_timeline == fixed.timeline.shape[0]
    )


@compiled
def last_event(fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord) -> int:
    """Run until nothing is left to do; the return is that of ``advance``. The clock stays at the last event.

    Looks at what priorities have become by themselves are not waited for once nothing else is due: nothing runs
    any more, so that what has not started by now fits nowhere, whatever its turn.
    """
    while True:
        time = next_time(fixed, world)
        if time == NEVER or (time == world.sim[0].review_due and _nothing_else_is_due(fixed, world)):
            return DONE
        code = advance(fixed, world, scratch, record, time)
        if code != DONE:
            return code


@compiled
def set_node_states(
    fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, chosen: np.ndarray, state: int
) -> None:
    """Change the state of a set of nodes now."""
    priorities.before_change(fixed, world, scratch)
    lifecycle.change_nodes(fixed, world, record, chosen, state)


@compiled
def _copy_rows(source: np.ndarray, target: np.ndarray, rows: int) -> None:
    for i in range(rows):
        target[i] = source[i]


@compiled
def _copy_grid(source: np.ndarray, target: np.ndarray, rows: int) -> None:
    for i in range(rows):
        for k in range(source.shape[1]):
            target[i, k] = source[i, k]


@compiled
def copy_world(source: ControllerState, target: ControllerState) -> None:
    """Copy the used rows of every table; ``target`` must be at least as large. Waits are not copied."""
    sim = source.sim[0]
    _copy_rows(source.sim, target.sim, 1)
    _copy_rows(source.jobs, target.jobs, sim.slots)
    _copy_grid(source.needs, target.needs, sim.slots)
    _copy_rows(source.agenda, target.agenda, sim.agenda)
    _copy_rows(source.pending, target.pending, sim.pending)
    _copy_rows(source.running, target.running, sim.running)
    _copy_rows(source.allocs, target.allocs, sim.allocs)
    _copy_rows(source.deps, target.deps, sim.deps)
    _copy_grid(source.free, target.free, source.free.shape[0])
    _copy_grid(source.bits, target.bits, MUST_ROW + 2 * sim.own)
    _copy_grid(source.groups, target.groups, source.groups.shape[0])
    _copy_rows(source.associations, target.associations, source.associations.shape[0])
    _copy_rows(source.own, target.own, sim.own)


@compiled
def place_candidate(
    fixed: Fixed, world: ControllerState, scratch: Scratch, record: KernelRecord, candidate: Candidate
) -> bool:
    """Submit a job now and watch it; False if its limits reject it."""
    slot = lifecycle.admit(fixed, world, scratch, candidate)
    if slot < 0:
        return False
    world.sim[0].watch = world.jobs[slot].own
    lifecycle.enter(fixed, world, record, slot)
    return True


@compiled
def starts_if_submitted(
    fixed: Fixed,
    base: ControllerState,
    work: ControllerState,
    scratch: Scratch,
    record: KernelRecord,
    candidate: Candidate,
    times: np.ndarray,
    horizon: int,
    starts: np.ndarray,
) -> int:
    """``starts[k]``: when the job would start if submitted at ``times[k]`` (ascending, >= now); NEVER if not
    within ``horizon`` seconds of its submission. ``base`` runs on from one time to the next; each candidate runs
    in ``work``, a copy. Returns the number of times done: fewer than asked when tables must grow first.
    """
    for k in range(times.shape[0]):
        if advance(fixed, base, scratch, record, times[k]) == NEED_SPACE:
            return k
        if base.sim[0].slots + 1 >= work.jobs.shape[0] or base.sim[0].agenda + 8 >= work.agenda.shape[0]:
            return k
        copy_world(base, work)
        starts[k] = NEVER
        if place_candidate(fixed, work, scratch, record, candidate):
            code = advance(fixed, work, scratch, record, times[k] + horizon)
            if code == NEED_SPACE:
                return k
            if code == WATCHED:
                starts[k] = work.own[work.sim[0].watch].start
    return times.shape[0]

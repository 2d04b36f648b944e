"""The clock: on to the next time at which something may be decided, what a policy then sees, and whole runs.

Whole runs follow one fixed order, or, with preemption, scores that are linear in what is left and in what was
served. The pending are told apart by what they need, each kind a heap: what a pass over a fixed order looks at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.allocation.ddl.kernel import lifecycle, placing
from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import (
    DECIDE,
    INFINITY,
    NEED_SPACE,
    OVER,
    PENDING,
    RUNNING,
    STUCK,
    THRASHING,
    Draft,
    PoolConstants,
    PoolState,
    Queues,
    Room,
    Site,
)
from mirage.allocation.ddl.kernel.placing import Placed
from mirage.allocation.ddl.kernel.rearranging import HeldDevices, rearrange, repack


@compiled
def fill(site: Site, lines: Queues, tasks: np.ndarray, count: int) -> None:
    """Empty the heaps, then enter the first ``count`` of ``tasks``."""
    for likeness in range(lines.size.shape[0]):
        lines.size[likeness] = 0
    for i in range(count):
        push(site, lines, tasks[i])


@inlined
def head(lines: Queues, likeness: int) -> int:
    """The first task of a heap that is not empty."""
    return lines.heap[lines.first[likeness]]


@compiled
def foremost(draft: Draft, lines: Queues) -> int:
    """The likeness whose first task comes first, of those that have not failed; -1 if there is none."""
    best, key = -1, lines.key.shape[0]
    for likeness in range(lines.size.shape[0]):
        if lines.size[likeness] > 0 and draft.failed[likeness] == 0:
            here = lines.key[head(lines, likeness)]
            if here < key:
                best, key = likeness, here
    return best


@compiled
def push(site: Site, lines: Queues, task: int) -> None:
    """Enter a task."""
    likeness = site.needs[task].likeness
    first, i = lines.first[likeness], lines.size[likeness]
    lines.size[likeness] = i + 1
    while i > 0:
        up = (i - 1) >> 1
        above = lines.heap[first + up]
        if lines.key[above] < lines.key[task]:
            break
        lines.heap[first + i] = above
        i = up
    lines.heap[first + i] = task


@compiled
def drop_head(lines: Queues, likeness: int) -> None:
    """Take the first task off."""
    first, n = lines.first[likeness], lines.size[likeness] - 1
    lines.size[likeness] = n
    task, i = lines.heap[first + n], 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and lines.key[lines.heap[first + child + 1]] < lines.key[lines.heap[first + child]]:
            child += 1
        if lines.key[lines.heap[first + child]] > lines.key[task]:
            break
        lines.heap[first + i] = lines.heap[first + child]
        i = child
    lines.heap[first + i] = task


MOST_FUTILE = 10
"""Preemptions for each task, in a row and for nothing, after which it is clear that it continues like that."""
ROUNDING = 1e-6
"""Of the sum of all free shares, after very many changes."""


@compiled
def advance(fixed: PoolConstants, site: Site, world: PoolState) -> int:
    """Continue until something is pending after an arrival, an end or a quantum; OVER when nothing happens
    more."""
    sim = world.sim[0]
    sim.fresh = 0
    while True:
        if sim.log + sim.held > world.log.shape[0]:
            return NEED_SPACE
        if sim.futile > MOST_FUTILE * fixed.tasks.shape[0]:
            return THRASHING
        time = _next(fixed, world)
        if time == INFINITY:
            return OVER if sim.pending == 0 else STUCK
        _pass_time(world, time)
        while sim.running > 0 and world.states[world.agenda[0]].end <= time:
            lifecycle.finish(fixed, site, world, world.agenda[0])
            sim.events += 1
        while sim.arrived < fixed.arrivals.shape[0] and _next_arrival(fixed, world) <= time:
            lifecycle.arrive(fixed, world, fixed.arrivals[sim.arrived])
            sim.events += 1
        if sim.pending > 0:
            sim.decided = time
            return DECIDE


@inlined
def _next_arrival(fixed: PoolConstants, world: PoolState) -> float:
    return fixed.tasks[fixed.arrivals[world.sim[0].arrived]].submit


@inlined
def _next(fixed: PoolConstants, world: PoolState) -> float:
    """When something happens next."""
    sim, time = world.sim[0], INFINITY
    if sim.arrived < fixed.arrivals.shape[0]:
        time = _next_arrival(fixed, world)
    if sim.running > 0:
        time = min(time, world.states[world.agenda[0]].end)
        if sim.pending > 0:
            time = min(time, sim.decided + fixed.config[0].quantum)
    return time


@inlined
def _pass_time(world: PoolState, time: float) -> None:
    sim = world.sim[0]
    if sim.pending > 0:
        sim.waiting += time - sim.now
        sim.idle_waiting += (time - sim.now) * sim.free
    sim.now = time


@compiled
def play_in_order(
    fixed: PoolConstants, site: Site, world: PoolState, draft: Draft, lines: Queues, code: int
) -> int:
    """Run to the end without preemption, tasks by ``lines.key``; OVER, STUCK, or NEED_SPACE to be called again."""
    fill(site, lines, world.pending, world.sim[0].pending)
    while True:
        _start_in_order(fixed, site, world, draft, lines, code)
        answer = advance(fixed, site, world)
        if answer != DECIDE:
            return answer
        for k in range(world.sim[0].fresh):
            push(site, lines, world.fresh[k])


@compiled
def _start_in_order(
    fixed: PoolConstants, site: Site, world: PoolState, draft: Draft, lines: Queues, code: int
) -> None:
    """Start what fits; of tasks that need the same, the first that fails speaks for all behind it."""
    room = Room(world.free, world.cpus, world.memory)
    for likeness in range(draft.failed.shape[0]):
        draft.failed[likeness] = 0
    while True:
        likeness = foremost(draft, lines)
        if likeness < 0:
            return
        task = head(lines, likeness)
        need = site.needs[task]
        enough = need.devices * need.share <= world.sim[0].free + ROUNDING
        if enough and placing.choose(site, room, draft, task, code):
            drop_head(lines, likeness)
            lifecycle.start(fixed, site, world, draft, task)
        elif fixed.config[0].strict == 1:
            return
        else:
            draft.failed[likeness] = 1


class GatheredView(NamedTuple):
    """Where what is seen is gathered."""

    candidates: np.ndarray  # i4 (tasks,)
    held_from: np.ndarray  # i4 (tasks + 1,)
    held: np.ndarray  # i4


@compiled
def refresh(fixed: PoolConstants, site: Site, world: PoolState, sight: GatheredView) -> int:
    """Bring the columns up to now, and gather devices held and, with preemption, candidates: how many."""
    sim = world.sim[0]
    for i in range(sim.running):
        lifecycle.count_service(fixed, world, world.agenda[i])
    count = 0
    for task in range(world.states.shape[0]):
        sight.held_from[task] = count
        if world.states[task].status == RUNNING:
            first = fixed.tasks[task].first_held
            for k in range(site.needs[task].devices):
                sight.held[count] = world.held[first + k]
                count += 1
    sight.held_from[world.states.shape[0]] = count
    return _gather(fixed, world, sight) if fixed.config[0].preempt == 1 else 0


@compiled
def _gather(fixed: PoolConstants, world: PoolState, sight: GatheredView) -> int:
    """The pending, and the running that can be preempted, in order of submission."""
    sim, count = world.sim[0], 0
    for i in range(sim.pending):
        sight.candidates[count] = world.pending[i]
        count += 1
    for i in range(sim.running):
        task = world.agenda[i]
        if fixed.tasks[task].restart >= 0.0:
            k = count
            while k > 0 and fixed.tasks[sight.candidates[k - 1]].rank > fixed.tasks[task].rank:
                sight.candidates[k] = sight.candidates[k - 1]
                k -= 1
            sight.candidates[k] = task
            count += 1
    return count


BASE, PER_REMAINING, PER_SERVED = range(3)


class Ranking(NamedTuple):
    """The candidates in order. Nearly right from one time to the next, so that little is to be sorted."""

    weights: np.ndarray  # f8 (tasks, 3)
    scores: np.ndarray  # f8 (tasks,)
    order: np.ndarray  # i4 (tasks,)
    listed: np.ndarray  # u1 (tasks,): 1 for those in ``order``
    size: np.ndarray  # i8 (1,)


class DecisionMemory(NamedTuple):
    """Working memory of one decision."""

    room: Room
    roomy: Room
    kept: np.ndarray  # u1 (tasks,)
    placed: Placed
    packed: Placed


@compiled
def play_by_score(
    fixed: PoolConstants,
    site: Site,
    world: PoolState,
    draft: Draft,
    sight: GatheredView,
    ranking: Ranking,
    desk: DecisionMemory,
    code: int,
) -> int:
    """Run to the end, or until space is needed: then to be called again. What ``advance`` answered last."""
    while True:
        if world.sim[0].pending > 0:
            refresh(fixed, site, world, sight)
            _rank(fixed, world, ranking)
            _decide(fixed, site, world, draft, sight, ranking, desk, code)
        answer = advance(fixed, site, world)
        if answer != DECIDE:
            return answer


@compiled
def _rank(fixed: PoolConstants, world: PoolState, ranking: Ranking) -> None:
    """Those that wait and those that may be preempted, by score; ties by submission."""
    order, size = ranking.order, 0
    for i in range(ranking.size[0]):
        task = order[i]
        if world.states[task].status == PENDING or _may_be_preempted(fixed, world, task):
            order[size] = task
            size += 1
        else:
            ranking.listed[task] = 0
    for i in range(world.sim[0].pending):
        task = world.pending[i]
        if ranking.listed[task] == 0:
            ranking.listed[task] = 1
            order[size] = task
            size += 1
    ranking.size[0] = size
    for i in range(size):
        _insert(fixed, world, ranking, i)


@inlined
def _may_be_preempted(fixed: PoolConstants, world: PoolState, task: int) -> bool:
    return world.states[task].status == RUNNING and fixed.tasks[task].restart >= 0.0


@inlined
def _insert(fixed: PoolConstants, world: PoolState, ranking: Ranking, i: int) -> None:
    """Score the i-th of the order and put it in its place among those before it."""
    task, order, scores = ranking.order[i], ranking.order, ranking.scores
    score, rank = _score(world, ranking, task), fixed.tasks[task].rank
    scores[task] = score
    while i > 0:
        before = order[i - 1]
        if scores[before] < score or (scores[before] == score and fixed.tasks[before].rank < rank):
            break
        order[i] = before
        i -= 1
    order[i] = task


@inlined
def _score(world: PoolState, ranking: Ranking, task: int) -> float:
    """What is not known counts as without end where it matters."""
    score = ranking.weights[task, BASE] + ranking.weights[task, PER_SERVED] * world.served[task]
    if ranking.weights[task, PER_REMAINING] != 0.0:
        score += ranking.weights[task, PER_REMAINING] * world.remaining[task]
    return INFINITY if np.isnan(score) else score


@compiled
def _decide(
    fixed: PoolConstants,
    site: Site,
    world: PoolState,
    draft: Draft,
    sight: GatheredView,
    ranking: Ranking,
    desk: DecisionMemory,
    code: int,
) -> None:
    """Rearrange, and do what that says."""
    _copy(world, desk.room)
    _copy(world, desk.roomy)
    holding = HeldDevices(world.task_node, sight.held_from, sight.held, desk.kept)
    order = ranking.order[: ranking.size[0]]
    strict = fixed.config[0].strict == 1
    if fixed.config[0].move == 1:
        count = repack(site, desk.room, desk.roomy, draft, holding, order, strict, code, desk.placed, desk.packed)
    else:
        count = rearrange(site, desk.room, desk.roomy, draft, holding, order, strict, code, desk.placed)
    for i in range(order.shape[0]):
        if world.task_node[order[i]] >= 0 and desk.kept[order[i]] == 0:
            lifecycle.preempt(fixed, site, world, order[i])
    for i in range(count):
        placing.recall(desk.placed, draft, i)
        lifecycle.start(fixed, site, world, draft, desk.placed.tasks[i])


@compiled
def _copy(world: PoolState, room: Room) -> None:
    for device in range(room.free.shape[0]):
        room.free[device] = world.free[device]
    for node in range(room.cpus.shape[0]):
        room.cpus[node] = world.cpus[node]
        room.memory[node] = world.memory[node]

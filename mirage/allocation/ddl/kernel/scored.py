"""Whole runs with preemption, by scores that are linear in what is left and in what was served."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.allocation.ddl.kernel import lifecycle, mainloop, placing, views
from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import (
    DECIDE,
    INFINITY,
    PENDING,
    RUNNING,
    Draft,
    Fixed,
    Room,
    Site,
    World,
)
from mirage.allocation.ddl.kernel.placing import Placed
from mirage.allocation.ddl.kernel.rearranging import Holding, rearrange
from mirage.allocation.ddl.kernel.repacking import repack
from mirage.allocation.ddl.kernel.views import Sight

BASE, PER_REMAINING, PER_SERVED = range(3)


class Ranking(NamedTuple):
    """The candidates in order. Nearly right from one time to the next, so that little is to be sorted."""

    weights: np.ndarray  # f8 (tasks, 3)
    scores: np.ndarray  # f8 (tasks,)
    order: np.ndarray  # i4 (tasks,)
    listed: np.ndarray  # u1 (tasks,): 1 for those in ``order``
    size: np.ndarray  # i8 (1,)


class Desk(NamedTuple):
    """Working memory of one decision."""

    room: Room
    roomy: Room
    kept: np.ndarray  # u1 (tasks,)
    placed: Placed
    packed: Placed


@compiled
def play_by_score(
    fixed: Fixed, site: Site, world: World, draft: Draft, sight: Sight, ranking: Ranking, desk: Desk, code: int
) -> int:
    """Run to the end, or until space is needed: then to be called again. What ``advance`` answered last."""
    while True:
        if world.sim[0].pending > 0:
            views.refresh(fixed, site, world, sight)
            _rank(fixed, world, ranking)
            _decide(fixed, site, world, draft, sight, ranking, desk, code)
        answer = mainloop.advance(fixed, site, world)
        if answer != DECIDE:
            return answer


@compiled
def _rank(fixed: Fixed, world: World, ranking: Ranking) -> None:
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
def _may_be_preempted(fixed: Fixed, world: World, task: int) -> bool:
    return world.states[task].status == RUNNING and fixed.tasks[task].restart >= 0.0


@inlined
def _insert(fixed: Fixed, world: World, ranking: Ranking, i: int) -> None:
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
def _score(world: World, ranking: Ranking, task: int) -> float:
    """What is not known counts as without end where it matters."""
    score = ranking.weights[task, BASE] + ranking.weights[task, PER_SERVED] * world.served[task]
    if ranking.weights[task, PER_REMAINING] != 0.0:
        score += ranking.weights[task, PER_REMAINING] * world.remaining[task]
    return INFINITY if np.isnan(score) else score


@compiled
def _decide(
    fixed: Fixed, site: Site, world: World, draft: Draft, sight: Sight, ranking: Ranking, desk: Desk, code: int
) -> None:
    """Rearrange, and do what that says."""
    _copy(world, desk.room)
    _copy(world, desk.roomy)
    holding = Holding(world.task_node, sight.held_from, sight.held, desk.kept)
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
def _copy(world: World, room: Room) -> None:
    for device in range(room.free.shape[0]):
        room.free[device] = world.free[device]
    for node in range(room.cpus.shape[0]):
        room.cpus[node] = world.cpus[node]
        room.memory[node] = world.memory[node]

"""The loops of the search for an order: plans played through a coarse pool, and simulated annealing over orders.

The coarse pool has nodes with so many free devices, and tasks with so many devices for so long. A plan is
played in its order: nobody passes anybody, or later tasks pass one that does not fit. Tasks are placed as the
best-fit placement policy does: on one node where there is one with room for all, the fullest of these; else on
the roomiest nodes, and what is left on the fullest with room for it. In a step of the annealing a task goes
elsewhere, or two change places.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mirage.allocation.ddl.kernel.compile import compiled, inlined

SLACK = 1e-6
"""Shares of devices are sums of decimals: so much may be missing."""

LOAD = np.dtype(
    [
        ("devices", "f8"),  # all of its shares together
        ("length", "f8"),  # seconds, as estimated
        ("kinds", "u8"),
        ("most_nodes", "i8"),
    ],
    align=True,
)


class Goal(NamedTuple):
    """What a plan costs: the mean completion time times one weight plus the makespan times the other."""

    jct: float
    makespan: float


class CoarsePool(NamedTuple):
    """What never changes during a search: P tasks that wait, before them in every column R that run."""

    loads: np.ndarray  # LOAD (R + P,)
    kinds: np.ndarray  # u8 (nodes,): what each node has
    free: np.ndarray  # f8 (nodes,): devices free now
    nodes: np.ndarray  # i8 (R + P, K): of those that run, the nodes
    parts: np.ndarray  # f8 (R + P, K): and how many devices on each; 0 behind the last


class TrialMemory(NamedTuple):
    """Working memory of one trial."""

    free: np.ndarray  # f8 (nodes,)
    nodes: np.ndarray  # i8 (R + P, K)
    parts: np.ndarray  # f8 (R + P, K)
    taken: np.ndarray  # u1 (nodes,): 0 between calls
    end: np.ndarray  # f8 (R + P,)
    heap: np.ndarray  # i8 (R + P,): those that run, the first to end on top


class Orders(NamedTuple):
    """Rows of ``CoarsePool.loads``, first come first."""

    best: np.ndarray  # i8 (P,)
    current: np.ndarray  # i8 (P,)
    trial: np.ndarray  # i8 (P,)
    costs: np.ndarray  # f8 (2,): of the best and of the current


INFINITY = float("inf")


@compiled
def cost(stage: CoarsePool, scratch: TrialMemory, goal: Goal, order: np.ndarray) -> float:
    """What the plan ``order`` (rows, i8) costs; infinite where a task never fits."""
    running = stage.loads.shape[0] - order.shape[0]
    begin(stage, scratch, running)
    now, total, last = 0.0, 0.0, 0.0
    size = running
    for i in range(order.shape[0]):
        task = order[i]
        while not place(stage, scratch, task):
            if size == 0:
                return INFINITY
            now = max(now, scratch.end[scratch.heap[0]])
            while size > 0 and scratch.end[scratch.heap[0]] <= now:
                size = end_first(scratch, size)
        scratch.end[task] = now + stage.loads[task].length
        total += scratch.end[task]
        last = max(last, scratch.end[task])
        size = push(scratch, size, task)
    return goal.jct * total / max(order.shape[0], 1) + goal.makespan * last


@compiled
def begin(stage: CoarsePool, scratch: TrialMemory, running: int) -> None:
    """As things stand now: ``running`` rows, the first of the table, run."""
    for node in range(stage.free.shape[0]):
        scratch.free[node] = stage.free[node]
    size = 0
    for task in range(running):
        scratch.end[task] = stage.loads[task].length
        for k in range(stage.parts.shape[1]):
            scratch.nodes[task, k], scratch.parts[task, k] = stage.nodes[task, k], stage.parts[task, k]
        size = push(scratch, size, task)


@compiled
def place(stage: CoarsePool, scratch: TrialMemory, task: int) -> bool:
    """Take what the task needs, if it is there."""
    load = stage.loads[task]
    left, parts = load.devices, 0
    for k in range(load.most_nodes):
        node = _fullest(stage, scratch, load.kinds, left)
        whole = node >= 0
        if not whole:
            node = _roomiest(stage, scratch, load.kinds)
            if node < 0:
                break
        here = left if whole else scratch.free[node]
        scratch.nodes[task, k], scratch.parts[task, k] = node, here
        scratch.taken[node] = 1
        left -= here
        parts += 1
        if whole:
            left = 0.0
            break
    fits = left < SLACK
    for k in range(parts):
        scratch.taken[scratch.nodes[task, k]] = 0
        if fits:
            scratch.free[scratch.nodes[task, k]] -= scratch.parts[task, k]
    if parts < stage.parts.shape[1]:
        scratch.parts[task, parts] = 0.0
    return fits


@inlined
def _fullest(stage: CoarsePool, scratch: TrialMemory, kinds: int, devices: float) -> int:
    best, least = -1, INFINITY
    for node in range(scratch.free.shape[0]):
        free = scratch.free[node]
        if free >= devices - SLACK and free < least and scratch.taken[node] == 0 and kinds & stage.kinds[node]:
            best, least = node, free
    return best


@inlined
def _roomiest(stage: CoarsePool, scratch: TrialMemory, kinds: int) -> int:
    best, most = -1, SLACK
    for node in range(scratch.free.shape[0]):
        free = scratch.free[node]
        if free > most and scratch.taken[node] == 0 and kinds & stage.kinds[node]:
            best, most = node, free
    return best


@compiled
def push(scratch: TrialMemory, size: int, task: int) -> int:
    """Enter a task that runs; how many do now."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if scratch.end[scratch.heap[up]] <= scratch.end[task]:
            break
        scratch.heap[i] = scratch.heap[up]
        i = up
    scratch.heap[i] = task
    return size + 1


@compiled
def end_first(scratch: TrialMemory, size: int) -> int:
    """The first to end gives back what it has; how many run then."""
    task, n, i = scratch.heap[0], size - 1, 0
    for k in range(scratch.parts.shape[1]):
        if scratch.parts[task, k] <= 0.0:
            break
        scratch.free[scratch.nodes[task, k]] += scratch.parts[task, k]
    moved = scratch.heap[n]
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and scratch.end[scratch.heap[child + 1]] < scratch.end[scratch.heap[child]]:
            child += 1
        if scratch.end[scratch.heap[child]] >= scratch.end[moved]:
            break
        scratch.heap[i] = scratch.heap[child]
        i = child
    scratch.heap[i] = moved
    return n


@compiled
def starts_when_passing(
    stage: CoarsePool, scratch: TrialMemory, order: np.ndarray, queue: np.ndarray, starts: np.ndarray
) -> None:
    """When each of ``order`` starts (s from now); ``queue``: a copy of it, used up."""
    size, left, now = stage.loads.shape[0] - order.shape[0], order.shape[0], 0.0
    begin(stage, scratch, size)
    while left > 0:
        waiting = 0
        for i in range(left):
            task = queue[i]
            if place(stage, scratch, task):
                starts[task] = now
                scratch.end[task] = now + stage.loads[task].length
                size = push(scratch, size, task)
            else:
                queue[waiting] = task
                waiting += 1
        left = waiting
        if left > 0:
            if size == 0:
                return
            now = max(now, scratch.end[scratch.heap[0]])
            while size > 0 and scratch.end[scratch.heap[0]] <= now:
                size = end_first(scratch, size)


INSERTIONS = 0.6
"""Of the moves; the others are exchanges."""


@compiled
def anneal(
    stage: CoarsePool, scratch: TrialMemory, goal: Goal, orders: Orders, draws: np.ndarray, heat: float
) -> None:
    """As many moves as ``draws`` (moves, 5), uniform in [0, 1), has rows.

    A move that costs more is taken with probability exp(-more / heat).
    """
    count = orders.current.shape[0]
    for m in range(draws.shape[0]):
        for i in range(count):
            orders.trial[i] = orders.current[i]
        _move(orders.trial, draws, m)
        found = cost(stage, scratch, goal, orders.trial)
        more = found - orders.costs[1]
        if more <= 0.0 or draws[m, 4] < math.exp(-more / heat):
            _accept(orders, found)


@compiled
def _move(order: np.ndarray, draws: np.ndarray, m: int) -> None:
    """Short ways are as likely as long ones: the distance is log-uniform."""
    count = order.shape[0]
    i, distance = int(draws[m, 0] * count), int(math.exp(draws[m, 1] * math.log(count)))
    j = min(i + distance, count - 1) if draws[m, 2] < 0.5 else max(i - distance, 0)
    task = order[i]
    if draws[m, 3] >= INSERTIONS:
        order[i], order[j] = order[j], task
        return
    step = 1 if j > i else -1
    for k in range(i, j, step):
        order[k] = order[k + step]
    order[j] = task


@compiled
def _accept(orders: Orders, found: float) -> None:
    better = found < orders.costs[0]
    for i in range(orders.current.shape[0]):
        orders.current[i] = orders.trial[i]
        if better:
            orders.best[i] = orders.trial[i]
    orders.costs[1] = found
    if better:
        orders.costs[0] = found

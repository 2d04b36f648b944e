"""A plan played through the coarse pool: in its order, nobody passes anybody.

Tasks are placed as the best-fit placement policy does: on one node where there is one with room for all, the
fullest of
these; else on the roomiest nodes, and what is left on the fullest with room for it.
"""

from __future__ import annotations

import numpy as np

from mirage.allocation.ddl.search.loops.compile import compiled, inlined
from mirage.allocation.ddl.search.loops.layout import SLACK, Goal, Scratch, Stage

INFINITY = float("inf")


@compiled
def cost(stage: Stage, scratch: Scratch, goal: Goal, order: np.ndarray) -> float:
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
def begin(stage: Stage, scratch: Scratch, running: int) -> None:
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
def place(stage: Stage, scratch: Scratch, task: int) -> bool:
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
def _fullest(stage: Stage, scratch: Scratch, kinds: int, devices: float) -> int:
    best, least = -1, INFINITY
    for node in range(scratch.free.shape[0]):
        free = scratch.free[node]
        if free >= devices - SLACK and free < least and scratch.taken[node] == 0 and kinds & stage.kinds[node]:
            best, least = node, free
    return best


@inlined
def _roomiest(stage: Stage, scratch: Scratch, kinds: int) -> int:
    best, most = -1, SLACK
    for node in range(scratch.free.shape[0]):
        free = scratch.free[node]
        if free > most and scratch.taken[node] == 0 and kinds & stage.kinds[node]:
            best, most = node, free
    return best


@compiled
def push(scratch: Scratch, size: int, task: int) -> int:
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
def end_first(scratch: Scratch, size: int) -> int:
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

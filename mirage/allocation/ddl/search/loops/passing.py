"""The other way to follow an order: later tasks pass one that does not fit."""

from __future__ import annotations

import numpy as np

from mirage.allocation.ddl.search.loops.compile import compiled
from mirage.allocation.ddl.search.loops.layout import Scratch, Stage
from mirage.allocation.ddl.search.loops.playing import begin, end_first, place, push


@compiled
def starts_when_passing(
    stage: Stage, scratch: Scratch, order: np.ndarray, queue: np.ndarray, starts: np.ndarray
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

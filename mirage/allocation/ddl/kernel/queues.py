"""The pending told apart by what they need, each kind a heap: what a pass over a fixed order looks at."""

from __future__ import annotations

import numpy as np

from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import Draft, Queues, Site


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

"""One pool of processors: first come first served, with or without EASY backfill.

Convention: at each instant all ends, then all submissions (in the order given), then one pass over the queue.
The pass starts jobs from the head while they fit. For the first that does not, the shadow time is when enough
running jobs have reached their requests' ends, and the extra processors are those then left over; a later job
starts if it fits now and either ends (by its request) no later than the shadow time or takes only extra
processors. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem & Feitelson, TPDS 2001.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel.compile import compiled

NOTHING = np.int64(1) << 61


@compiled
def _push(heap: np.ndarray, size: int, time: int, procs: int) -> None:
    """Add (time, procs) to a binary heap of ``size`` entries."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if heap[up, 0] <= time:
            break
        heap[i, 0], heap[i, 1] = heap[up, 0], heap[up, 1]
        i = up
    heap[i, 0], heap[i, 1] = time, procs


@compiled
def _pop(heap: np.ndarray, size: int) -> None:
    """Drop the first entry of a heap of ``size`` entries."""
    last_time, last_procs = heap[size - 1, 0], heap[size - 1, 1]
    i, n = 0, size - 1
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and heap[child + 1, 0] < heap[child, 0]:
            child += 1
        if heap[child, 0] >= last_time:
            break
        heap[i, 0], heap[i, 1] = heap[child, 0], heap[child, 1]
        i = child
    heap[i, 0], heap[i, 1] = last_time, last_procs


@compiled
def _insert_planned(planned: np.ndarray, size: int, time: int, procs: int) -> None:
    """Keep running jobs in order of their requests' ends."""
    i = size
    while i > 0 and planned[i - 1, 0] > time:
        planned[i, 0], planned[i, 1] = planned[i - 1, 0], planned[i - 1, 1]
        i -= 1
    planned[i, 0], planned[i, 1] = time, procs


@compiled
def _remove_planned(planned: np.ndarray, size: int, time: int, procs: int) -> None:
    low, high = 0, size
    while low < high:
        middle = (low + high) >> 1
        if planned[middle, 0] < time:
            low = middle + 1
        else:
            high = middle
    while planned[low, 1] != procs:
        low += 1
    for k in range(low, size - 1):
        planned[k, 0], planned[k, 1] = planned[k + 1, 0], planned[k + 1, 1]


@compiled
def run_pool(
    submit: np.ndarray,
    runtime: np.ndarray,
    request: np.ndarray,
    procs: np.ndarray,
    capacity: int,
    backfill: bool,
    start: np.ndarray,
    ends: np.ndarray,
    planned: np.ndarray,
    queue: np.ndarray,
) -> None:
    """Fill ``start`` for jobs in order of submission.

    ``ends``: work, (jobs, 3) with the planned end behind; ``planned``: (capacity + 1, 2); ``queue``: (jobs,).
    """
    n = submit.shape[0]
    free, running, waiting, arrived = capacity, 0, 0, 0
    while arrived < n or running > 0:
        now = submit[arrived] if arrived < n else NOTHING
        if running > 0 and ends[0, 0] < now:
            now = ends[0, 0]
        while running > 0 and ends[0, 0] == now:
            job = ends[0, 1]
            free += procs[job]
            if backfill:
                _remove_planned(planned, running, start[job] + request[job], procs[job])
            _pop(ends, running)
            running -= 1
        while arrived < n and submit[arrived] == now:
            queue[waiting] = arrived
            waiting, arrived = waiting + 1, arrived + 1
        if waiting == 0 or free == 0:
            continue
        kept, i = 0, 0
        shadow, extra, blocked = NOTHING, np.int64(0), False
        while i < waiting:
            job = queue[i]
            need = procs[job]
            if blocked:
                fits = need <= free and (now + request[job] <= shadow or need <= extra)
            else:
                fits = need <= free
            if fits:
                start[job] = now
                free -= need
                if blocked and now + request[job] > shadow:
                    extra -= need
                _push(ends, running, now + runtime[job], job)
                if backfill:
                    _insert_planned(planned, running, now + request[job], need)
                running += 1
            else:
                queue[kept] = job
                kept += 1
                if not blocked:
                    if not backfill:
                        i += 1
                        break
                    blocked = True
                    available, k = free, 0
                    while available < need:
                        available += planned[k, 1]
                        shadow = planned[k, 0]
                        k += 1
                    while k < running and planned[k, 0] == shadow:
                        available += planned[k, 1]
                        k += 1
                    extra = available - need
            i += 1
            if free == 0:
                break
        if kept < i:
            while i < waiting:
                queue[kept] = queue[i]
                kept, i = kept + 1, i + 1
            waiting = kept

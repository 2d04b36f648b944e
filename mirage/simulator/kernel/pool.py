"""One pool of CPUs: first come first served, with or without EASY backfill.

Convention: at each time all ends, then all submissions (in the order given), then one pass over the queue.
The pass starts jobs from the head while they fit. For the first that does not, the shadow time is when enough
running jobs have reached their requests' ends, and the extra CPUs are those then left over; a later job
starts if it fits now and either ends (by its request) no later than the shadow time or takes only extra
CPUs. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem & Feitelson, TPDS 2001.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel.compile import compiled, inlined

NOTHING = np.int64(1) << 61
SUBMIT, RUNTIME, REQUEST, PROCS = range(4)


@inlined
def _push(heap: np.ndarray, size: int, time: int, job: int) -> None:
    """Add (time, job) to a binary heap of ``size`` entries."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if heap[up, 0] <= time:
            break
        heap[i, 0], heap[i, 1] = heap[up, 0], heap[up, 1]
        i = up
    heap[i, 0], heap[i, 1] = time, job


@inlined
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


@inlined
def _insert_planned(planned: np.ndarray, size: int, time: int, procs: int) -> None:
    """Keep running jobs in order of their requests' ends."""
    i = size
    while i > 0 and planned[i - 1, 0] > time:
        planned[i, 0], planned[i, 1] = planned[i - 1, 0], planned[i - 1, 1]
        i -= 1
    planned[i, 0], planned[i, 1] = time, procs


@inlined
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


@inlined
def _shadow(planned: np.ndarray, running: int, free: int, need: int) -> tuple[int, int]:
    """When ``need`` CPUs will be free by the running jobs' requests, and how many are then left over."""
    available, k, shadow = free, 0, NOTHING
    while available < need:
        available += planned[k, 1]
        shadow = planned[k, 0]
        k += 1
    while k < running and planned[k, 0] == shadow:
        available += planned[k, 1]
        k += 1
    return shadow, available - need


@compiled
def run_pool(
    jobs: np.ndarray,
    capacity: int,
    backfill: bool,
    start: np.ndarray,
    ends: np.ndarray,
    planned: np.ndarray,
    queue: np.ndarray,
) -> None:
    """Fill ``start`` for ``jobs``: rows of (submit, runtime, request, CPUs) in order of submission.

    Work: ``ends`` and ``planned`` of shape (capacity + 1, 2), a heap of (end, job) and a list of (planned end,
    CPUs) in order; ``queue`` of shape (jobs,).
    """
    n, free, running, waiting, arrived = jobs.shape[0], capacity, 0, 0, 0
    while arrived < n or running > 0:
        now = jobs[arrived, SUBMIT] if arrived < n else NOTHING
        if running > 0 and ends[0, 0] < now:
            now = ends[0, 0]
        while running > 0 and ends[0, 0] == now:
            job = ends[0, 1]
            free += jobs[job, PROCS]
            _remove_planned(planned, running, start[job] + jobs[job, REQUEST], jobs[job, PROCS])
            _pop(ends, running)
            running -= 1
        while arrived < n and jobs[arrived, SUBMIT] == now:
            queue[waiting] = arrived
            waiting, arrived = waiting + 1, arrived + 1
        # One pass: ``kept`` jobs before ``i`` stay in the queue; the first of them sets the shadow time.
        kept, i, shadow, extra = 0, 0, NOTHING, np.int64(0)
        while i < waiting and free > 0 and (backfill or kept == 0):
            job = queue[i]
            i += 1
            need, asked_end = jobs[job, PROCS], now + jobs[job, REQUEST]
            if need > free or (kept > 0 and asked_end > shadow and need > extra):
                if kept == 0:
                    shadow, extra = _shadow(planned, running, free, need)
                queue[kept] = job
                kept += 1
                continue
            if kept > 0 and asked_end > shadow:
                extra -= need
            start[job] = now
            free -= need
            _push(ends, running, now + jobs[job, RUNTIME], job)
            _insert_planned(planned, running, asked_end, need)
            running += 1
        if kept < i:
            while i < waiting:
                queue[kept] = queue[i]
                kept, i = kept + 1, i + 1
            waiting = kept

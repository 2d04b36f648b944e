"""A slow, plain EASY and FIFO: what the compiled pool must equal, start by start.

Rules, in the order they apply at a time: every job whose end has come leaves; every job submitted by now
joins the end of the queue (order: submit, then row); one scheduling pass is made. The run time is capped at
the request; a request that is absent (<= 0) is the run time itself. A job that runs for 0 s leaves at the
time it started, before a further pass at that same time.

EASY's pass (Lifka 1995; Mu'alem and Feitelson 2001): start jobs from the head while they fit. The first that
does not fit, the head, has its start fixed at the *shadow time*, the earliest time at which the running
jobs, ending at their requests, leave it enough CPUs; the CPUs then free beyond its need are
*extra*. Any later job starts now if it fits and either ends by the shadow time or takes only extra ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class PoolJob:
    submit: int
    runtime: int
    request: int
    procs: int
    start: int = -1

    @property
    def end(self) -> int:
        return self.start + self.runtime

    @property
    def expected_end(self) -> int:
        return self.start + self.request


def pool_starts(
    submit: Sequence[int],
    runtime: Sequence[int],
    request: Sequence[int],
    procs: Sequence[int],
    capacity: int,
    backfill: bool = True,
) -> list[int]:
    """Start of each job in seconds; -1 where the job asks for more than ``capacity``."""
    jobs = []
    for when, run, asked, width in zip(submit, runtime, request, procs, strict=True):
        wanted = asked if asked > 0 else run
        jobs.append(PoolJob(when, min(run, wanted), wanted, width))
    arrivals = sorted((job for job in jobs if job.procs <= capacity), key=lambda job: job.submit)
    queue: list[PoolJob] = []
    running: list[PoolJob] = []
    while arrivals or running:
        now = min([job.submit for job in arrivals[:1]] + [job.end for job in running])
        running = [job for job in running if job.end > now]
        while arrivals and arrivals[0].submit <= now:
            queue.append(arrivals.pop(0))
        schedule_pass(now, queue, running, capacity, backfill)
    return [job.start for job in jobs]


def schedule_pass(now: int, queue: list[PoolJob], running: list[PoolJob], capacity: int, backfill: bool) -> None:
    """Start what may start at ``now``: moves jobs from ``queue`` to ``running``."""
    while queue and queue[0].procs <= idle(running, capacity):
        begin(queue[0], now, queue, running)
    if not queue or not backfill:
        return
    shadow, extra = reservation(queue[0], running, capacity)
    for job in queue[1:]:
        if job.procs > idle(running, capacity):
            continue
        if now + job.request <= shadow:
            begin(job, now, queue, running)
        elif job.procs <= extra:
            extra -= job.procs
            begin(job, now, queue, running)


def begin(job: PoolJob, now: int, queue: list[PoolJob], running: list[PoolJob]) -> None:
    job.start = now
    queue.remove(job)
    running.append(job)


def idle(running: list[PoolJob], capacity: int) -> int:
    return capacity - sum(job.procs for job in running)


def reservation(head: PoolJob, running: list[PoolJob], capacity: int) -> tuple[int, int]:
    """The head's shadow time and the extra CPUs then."""
    for shadow in sorted({job.expected_end for job in running}):
        free = capacity - sum(job.procs for job in running if job.expected_end > shadow)
        if free >= head.procs:
            return shadow, free - head.procs
    raise AssertionError("a job no wider than the pool fits once all running jobs have ended")


def bounded_slowdown(wait: int, run: int, tau: int = 10) -> float:
    """Feitelson's bounded slowdown, max(1, (wait + run) / max(run, tau))."""
    return max(1.0, (wait + run) / max(run, tau))

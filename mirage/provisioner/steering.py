"""Holding back a successor that is already in the queue, and letting it go. Pure.

A link that is submitted early and held back grows older in the queue while its predecessor runs; whether that
counts is Slurm's affair (``PriorityFlags``, see DESIGN.md). When it may start stays open until it does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import LinkState, Steering
from mirage.domain.job import Job, JobChange, JobRequest

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord, Link

BACK = 1_000_000
"""The nice value of a link held back: more than the factors of common sites' priorities add up to."""


def bid(request: JobRequest, steering: Steering) -> JobRequest:
    """The request of a link that goes into the queue held back."""
    if steering is Steering.HOLD:
        return replace(request, held=True)
    return replace(request, nice=request.nice + BACK) if steering is Steering.NICE else request


def held_back(job: Job, chain_nice: int, steering: Steering) -> bool:
    """Whether the pending job is held back, by this kind of steering."""
    return job.held if steering is Steering.HOLD else job.nice > chain_nice


def change(request: JobRequest, steering: Steering, *, back: bool) -> JobChange:
    """What to ask of Slurm to hold the link back or to let it go."""
    if steering is Steering.HOLD:
        return JobChange(held=back)
    return JobChange(nice=request.nice + BACK if back else request.nice)


def steerable(record: ChainRecord, link: Link) -> bool:
    """Whether the link's start can still be influenced."""
    return record.chain.steering is not Steering.OFF and link.state is LinkState.PENDING

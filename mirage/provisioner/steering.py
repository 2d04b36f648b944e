"""Hold and release a successor that is already in the queue. Pure.

A link that is submitted early and held ages in the queue while its predecessor runs. Each cycle decides again
whether it may start, so that a predecessor that ends early or gets more time is taken into account.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus, Steering
from mirage.domain.job import ABSENT, JobChange, JobState
from mirage.domain.link import NO_JOB, LinkState
from mirage.provisioner.limitwarnings import ends_early

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.job import Job, JobId, JobRequest, Seconds
    from mirage.domain.link import Link

BACK = 1_000_000
"""The nice value of a link held: more than the factors of common sites' priorities add up to."""


def steerable(record: ChainRecord, link: Link) -> bool:
    """Whether the link's start can still be influenced; one that its owner holds is left to its owner."""
    if record.chain.method is Steering.OFF or record.chain.owner_holds(link.index):
        return False
    return link.state is LinkState.PENDING and not link.unpinned


def left_bound(record: ChainRecord) -> Link | None:
    """The pinned link of a paused chain, once no predecessor lives: the nodes to which it is bound may be down."""
    waiting = record.waiting
    alone = waiting is not None and record.live == (waiting,) and steerable(record, waiting)
    return (
        waiting if alone and record.status is ChainStatus.PAUSED and record.chain.method is Steering.PIN else None
    )


def waited_for_predecessors(record: ChainRecord) -> Iterator[JobId]:
    """Jobs that Slurm counts as eligible while their predecessors run: their waits say nothing of the queue."""
    if record.chain.method in (Steering.PIN, Steering.NICE):
        yield from (link.job_id for link in record.links[1:] if not link.unpinned and link.job_id != NO_JOB)


def bid(request: JobRequest, chain: Chain, predecessor: Job) -> JobRequest:
    """The request of a link that goes into the queue held."""
    match chain.method:
        case Steering.HOLD:
            return replace(request, held=True)
        case Steering.NICE:
            return replace(request, nice=_own_nice(request) + BACK)
        case Steering.PIN:
            return replace(request, node_list=predecessor.node_list)
    return request


def spoken(chain: Chain, predecessor: int) -> str:
    """Mode in which the successor of link ``predecessor`` is held, as text."""
    until = "ends" if chain.one_writer or not chain.release_lead else "is near its end"
    if chain.method is Steering.PIN:
        return f"bound to the nodes of link {predecessor} until it {until}"
    way = "held" if chain.method is Steering.HOLD else "at low priority (nice)"
    return f"{way} until link {predecessor} {until}"


def held_back(job: Job, chain: Chain) -> bool:
    """Whether the pending job is held, in the way of its chain."""
    match chain.method:
        case Steering.HOLD:
            return job.held
        case Steering.NICE:
            return job.nice > _own_nice(chain.request)
        case Steering.PIN:
            return job.node_list != chain.request.node_list
    return False


def wanted_back(job: Job, record: ChainRecord, predecessor: Job | None, now: Seconds) -> bool:
    """Whether the successor ``job`` is to be held at ``now``, until the lead before the end to be expected.

    A pinned one without lead, or of one writer, stays where it is for as long as its predecessor runs: it cannot
    start before the nodes are free, and then it does. Nothing else keeps a link of one writer back, so that its
    binding outlasts whatever is not certainly over.
    """
    if predecessor is None:
        return False
    chain = record.chain
    over = predecessor.state.finished and not predecessor.completing
    if chain.method is Steering.PIN and chain.one_writer:
        return predecessor.state is JobState.RUNNING or (not over and held_back(job, chain))
    if predecessor.state is not JobState.RUNNING or predecessor.end == ABSENT:
        return False
    if chain.method is Steering.PIN and not chain.release_lead:
        return True
    return now < predecessor.end - ends_early(record) - chain.release_lead


def change(chain: Chain, predecessor: Job | None, *, back: bool) -> JobChange:
    """Return the change of the job that holds or releases the link."""
    request = chain.request
    match chain.method:
        case Steering.HOLD:
            return JobChange(held=back)
        case Steering.PIN:
            nodes = predecessor.node_list if predecessor is not None else ""
            return JobChange(node_list=nodes if back else request.node_list)
    return JobChange(nice=_own_nice(request) + BACK if back else _own_nice(request))


def _own_nice(request: JobRequest) -> int:
    """Nice value that the owner gave the chain; a negative one, which Slurm grants operators only, counts as 0."""
    return max(request.nice, 0)

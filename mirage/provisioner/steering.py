"""Hold and release a successor that is in the queue; whether Slurm had warned a link of its time limit. Pure.

A link that is submitted early and held ages in the queue while its predecessor runs. Each cycle decides again
whether it may start, so that a predecessor that ends early or gets more time is taken into account. Warnings
(``--signal``) count by the limit that a link's job has or had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus, Steering
from mirage.domain.job import ABSENT, WARNED_EARLY, JobChange, JobState
from mirage.domain.link import NO_JOB, LinkState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.job import Job, JobId, JobRequest, Seconds
    from mirage.domain.link import Link
    from mirage.provisioner.events import LinkEnded, LinkStarted

_RECENT = 3
_CLOCK_BEHIND = 1_800  # seconds by which the clock of this machine may be behind Slurm's


def was_warned(record: ChainRecord, link: Link) -> bool:
    """Whether ``--signal`` had come, by the job's own limit; Slurm sends it up to a minute early (man sbatch).

    A job that has completed has run. Where accounting has lost its start, the signal may have come.
    """
    request = record.chain.request
    if request.warn is None:
        return False
    if not link.started:
        return link.job_state is JobState.COMPLETED
    ends = link.start + request.limit if link.limit_end == ABSENT else link.limit_end
    return link.end >= _warning(record, ends) or link.warned_from <= link.end <= link.warned_until


def as_expected(record: ChainRecord, job: Job | None, now: Seconds) -> Job | None:
    """The running predecessor with the end that is to be expected: earlier where its script ends when warned."""
    if job is None or job.state is not JobState.RUNNING or job.end == ABSENT or job.end <= now:
        return job
    early = ends_early(record)
    return replace(job, end=max(job.end - early, now + 1)) if early else job


def ends_early(record: ChainRecord) -> Seconds:
    """How long before its limit a running link is expected to end by itself.

    By the last links: as long as the one that ended closest to its limit. Where none has ended so, as in a service
    whose links exit early, Slurm's warning counts: the successor has to start before it.
    """
    ended = [link for link in record.links if link.started and link.final and not link.is_retired][-_RECENT:]
    if not ended and record.chain.handover.makes_way:
        return record.chain.request.warn.lead if record.chain.request.warn else 0
    return min((_early(record, link) for link in ended), default=0)


def _early(record: ChainRecord, link: Link) -> Seconds:
    """Seconds before its limit at which a link has ended by itself, once it was warned of it."""
    by_itself = link.job_state in (JobState.COMPLETED, JobState.FAILED)
    known = by_itself and link.limit_end != ABSENT and was_warned(record, link)
    return max(0, link.limit_end - link.end) if known else 0


def _warning(record: ChainRecord, ends: Seconds) -> Seconds:
    """When Slurm warns of a limit at the earliest."""
    warn = record.chain.request.warn
    return ends - (warn.lead if warn else 0) - WARNED_EARLY


def limit_end(record: ChainRecord, event: LinkStarted | LinkEnded) -> Seconds:
    """When the limit ends the job, or would have; ``ABSENT`` where it never ran or nothing is known.

    A job that was suspended ends later than its start and limit say: a known end is moved on.
    """
    link = record.links[event.index - 1]
    if link.limit_end != ABSENT and link.start == event.start:
        known = ABSENT not in (link.limit, event.limit)
        return link.limit_end + (event.limit - link.limit if known else 0)
    return event.start + event.limit if ABSENT not in (event.start, event.limit) else ABSENT


def with_limit(record: ChainRecord, event: LinkStarted | LinkEnded, ends: Seconds, at: Seconds) -> Link:
    """The link with its limit as it is ``at`` a time; a warning by the limit of before stays known."""
    link = record.links[event.index - 1]
    begin, warned, former = link.warned_from, link.warned_until, link.limit_end
    if link.start != event.start:
        before = record.chain.request.limit if link.limit == ABSENT else link.limit
        begin = warned = ABSENT
        former = event.start + before if ABSENT not in (event.start, ends) else ABSENT
    if former not in (ABSENT, ends) and at + _CLOCK_BEHIND >= _warning(record, former):
        earliest = _warning(record, former)
        begin = earliest if warned == ABSENT else min(begin, earliest)
        warn = record.chain.request.warn
        # Saving may take all of the lead, and as long again where that is why the limit was raised.
        warned = max(warned, former + (warn.lead if warn else 0))
    limit = link.limit if event.limit == ABSENT else event.limit
    changed = replace(link, start=event.start, limit=limit, limit_end=ends)
    return replace(changed, warned_from=begin, warned_until=warned)


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


def held_request(request: JobRequest, chain: Chain, predecessor: Job) -> JobRequest:
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

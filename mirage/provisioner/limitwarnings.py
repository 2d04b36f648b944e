"""Whether Slurm had warned a link of its time limit (``--signal``), by the limit that its job has or had. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, WARNED_EARLY, JobState

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job, Seconds
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

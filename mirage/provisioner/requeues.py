"""A job that goes back to the queue after it ran: its run was a link of its own. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import Link, LinkState
from mirage.domain.job import ABSENT, JobState

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job, Seconds
    from mirage.provisioner.events import LinkRequeued


def end_of_run(link: Link, job: Job, now: Seconds) -> Seconds:
    """When the run of ``link`` ended whose job waits, or runs, anew; ``ABSENT`` where it is still the same run.

    Slurm submits a requeued job anew, at that instant; where it does not say so, the run ended before ``now``.
    """
    if not link.running or link.requeued or not (job.state is JobState.PENDING or job.submit > link.start):
        return ABSENT
    return job.submit if link.start < job.submit <= now else max(link.start, min(link.end, now))


def end_name(link: Link) -> str:
    """How the link ended, as Slurm calls it."""
    return "REQUEUED" if link.requeued else link.job_state.name


def requeued(record: ChainRecord, event: LinkRequeued, now: Seconds) -> ChainRecord:
    """The record after a run that ended in a requeue.

    The job is the next link where none is there. Where one waits or runs already, or none is wanted, the job is
    retired: it would be a second writer. Its run counts once it is gone.
    """
    link = record.links[event.index - 1]
    ended = replace(link, end=event.end, job_state=JobState.PREEMPTED, requeued=True)
    overtaken = any(other.index > link.index and (other.waiting or other.running) for other in record.links)
    if record.over or link.is_retired or overtaken:
        return record.with_link(replace(ended, state=LinkState.PENDING, retired=now))
    record = record.with_link(replace(ended, state=LinkState.ENDED))
    tag = record.chain.tag(record.next_index)
    again = Link(record.next_index, tag, now, LinkState.SUBMITTED, link.job_id, event.submit)
    return record.with_link(replace(again, reason=f"job {link.job_id} was requeued"))

"""A job that goes back to the queue after it ran: that run counts as a separate link. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.job import JobState, PastRun
from mirage.domain.link import Link, LinkState

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job, Seconds
    from mirage.provisioner.events import LinkRequeued


def ended_run(link: Link, job: Job, now: Seconds) -> PastRun | None:
    """Return the ended run of ``link`` whose job waits, runs or has ended again; ``None``: no such run.

    ``submit`` is when the job was put into the queue again. Accounting shows the runs, also those that no snapshot
    has shown. Slurm submits a requeued job again once its nodes are cleaned up, which may be much later than the
    run's end; that counts where accounting does not know the run yet. Where neither is known, it ended before
    ``now``.
    """
    if link.requeued:
        return None
    runs = [run for run in _past_runs(job) if run.start <= run.end <= now]
    if not link.running:
        if job.submit <= link.job_submit:  # a link that was never seen has had the runs of accounting
            return None
        missed = next((run for run in runs if run.submit >= link.job_submit), None)
        return missed and missed._replace(submit=_submit_after(job, missed.start))
    if job.state is not JobState.PENDING and job.submit <= link.start:
        return None
    known = [run.end for run in runs if run.start == link.start]
    seen = job.submit if link.start < job.submit <= now else max(link.start, min(link.end, now))
    return PastRun(_submit_after(job, link.start), link.start, known[-1] if known else seen)


def _submit_after(job: Job, start: Seconds) -> Seconds:
    """When the job was put into the queue for the run after the one that began at ``start``."""
    return next((run.submit for run in _past_runs(job) if run.submit > start), job.submit)


def _past_runs(job: Job) -> list[PastRun]:
    return [PastRun(*run) for run in job.past_runs]


def end_name(link: Link) -> str:
    """End of the link in Slurm's terms."""
    return "REQUEUED" if link.requeued else link.job_state.name


def requeued(record: ChainRecord, event: LinkRequeued, now: Seconds) -> ChainRecord:
    """The record after a run that ended in a requeue.

    The job is the next link where none is there. Where one waits or runs already, or none is due, the job is
    retired: it would be a second writer. Its run counts once it is gone.
    """
    link = record.links[event.index - 1]
    ended = replace(link, end=event.end, job_state=JobState.PREEMPTED, requeued=True, job_submit=event.submit)
    overtaken = any(other.index > link.index and (other.waiting or other.running) for other in record.links)
    if record.over or link.is_retired or overtaken:
        return record.with_link(replace(ended, state=LinkState.PENDING, retired=now))
    record = record.with_link(replace(ended, state=LinkState.ENDED))
    tag = record.chain.tag(record.next_index)
    again = Link(record.next_index, tag, now, LinkState.SUBMITTED, link.job_id, event.submit)
    reason = f"job {link.job_id} was requeued"
    return record.with_link(replace(again, reason=reason, job_submit=event.submit, unpinned=link.unpinned))

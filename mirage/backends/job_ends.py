"""Ends and earlier runs of a link's job, where the queue and accounting each know a part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, NEVER, Job, JobState, PastRun
from mirage.domain.link import LinkIdentity, is_link

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirage.backends.jobquery import Ask, Fates
    from mirage.domain.job import Seconds
    from mirage.slurm.queuetext import QueueRow

_SENT_WITHIN = 5  # seconds after its cycle began in which a link nearly always reaches Slurm

# Ends after which a job does not go back to the queue; the others may be a requeue in the making.
_FINAL = (
    *(JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT),
    *(JobState.CANCELLED, JobState.OUT_OF_MEMORY, JobState.DEADLINE),
)


def with_past_runs(links: Iterable[Job], known: Mapping[str, LinkIdentity], ask: Ask) -> dict[str, Job]:
    """The links whose jobs were requeued since they were sent or last seen, with the runs that ended before."""
    again = {job.tag: job for job in links if job.submit > _submitted_by(known[job.tag])}
    if not again:
        return {}
    fates = ask({job.job_id for job in again.values()})
    return {tag: _with_runs(job, known[tag], fates) for tag, job in again.items()}


def _submitted_by(link: LinkIdentity) -> Seconds:
    """When its first run was submitted, at the latest; a later submit time is another run's."""
    sent = NEVER if link.sent == ABSENT else link.sent + _SENT_WITHIN
    return sent if link.submit == ABSENT else link.submit


def _with_runs(job: Job, link: LinkIdentity, fates: Fates) -> Job:
    if not fates.answered or job.job_id in fates.unanswered:
        return replace(job, runs_untold=link.submit != ABSENT)
    every = [run for run in fates.runs() if run.job_id == job.job_id]
    if same := [run.submit for run in every if run.start == job.start != ABSENT]:
        job = replace(job, submit=min(job.submit, *same))  # of a run that was resized the last row alone is known
    runs = [run for run in every if run.submit < job.submit]
    ended = [
        run for run in runs if run.state.finished and ABSENT not in (run.start, run.end) and is_link(run, link)
    ]
    return replace(job, past_runs=tuple(sorted(PastRun(run.submit, run.start, run.end) for run in ended)))


def end_of(completing: QueueRow, told: Job | None, last: Job | None, now: Seconds) -> Job:
    """The end of a job whose nodes are being cleaned up; it counts as running where the end is unknown.

    Not every accounting reports exit codes; the queue may drop the job before the next poll.
    """
    if told is None or told.state not in _FINAL:
        return _before_completing(completing.job, last, now)
    end = told.end if told.end != ABSENT else completing.job.end
    code = told.exit_code if told.exit_code != ABSENT else completing.exit_code
    return replace(completing.job, state=told.state, exit_code=code, end=end, completing=True)


def _before_completing(job: Job, last: Job | None, now: Seconds) -> Job:
    """A job that goes back to the queue is shown with a start and an end that it never had: those before count."""
    if ABSENT < job.end <= now:  # it has ended
        return job
    seen = last is not None and last.job_id == job.job_id and last.state is JobState.RUNNING
    start, end = (last.start, last.end) if last is not None and seen else (ABSENT, ABSENT)
    return replace(job, start=start, end=end)


def ended_unseen(told: Job | None) -> Job | None:
    """A job found by its tag alone: it counts if it ran and ended."""
    return told if told is not None and told.state.finished and told.start != ABSENT else None

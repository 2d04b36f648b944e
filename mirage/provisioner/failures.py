"""Ends of links: which count as failures in a row, and whether the chain is complete by them. Pure.

It is complete once it has run the number of links, or the total time, that its owner set. A job that goes back
to the queue after it ran counts as a separate link.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus
from mirage.domain.failurepolicy import FailureAction, FailureKind
from mirage.domain.job import ABSENT, JobState, PastRun
from mirage.domain.link import Link, LinkState
from mirage.provisioner.handover import told_to_leave

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    retired: it would be a second writer. Its run counts once it is gone. A job that runs again already, while its
    successor has not begun its work, is the next link, and the successor is retired: the job's work would be lost,
    and the successor would take its cancellation for the owner's.
    """
    link = record.links[event.index - 1]
    idle = () if record.over or (link.is_retired and not link.requeued) else _idle_successors(record, event)
    for other in idle:
        record = record.with_link(replace(other, retired=now))
    if link.requeued and not idle:  # it was to be cancelled, and still is
        return record.with_link(replace(link, state=LinkState.RUNNING))
    ended = replace(link, requeued=True, retired=ABSENT)
    if not link.requeued:
        ended = replace(ended, end=event.end, job_state=JobState.PREEMPTED, job_submit=event.submit)
    later = record.links[event.index :]
    overtaken = not idle and any(other.waiting or other.running for other in later)
    if record.over or (link.is_retired and not idle) or overtaken:
        return record.with_link(replace(ended, state=LinkState.PENDING, retired=now))
    record = record.with_link(replace(ended, state=LinkState.ENDED))
    tag = record.chain.tag(record.next_index)
    again = Link(record.next_index, tag, now, LinkState.SUBMITTED, link.job_id, event.submit)
    reason = f"job {link.job_id} was requeued"
    return record.with_link(replace(again, reason=reason, job_submit=event.submit, unpinned=link.unpinned))


def _idle_successors(record: ChainRecord, event: LinkRequeued) -> Sequence[Link]:
    """The later links, if the job runs again and none of them has begun its work; else none.

    With one writer a link that started after that run waits for its end.
    """
    later = [link for link in record.links[event.index :] if not link.final and not link.is_retired]
    begun = any(link.running and works(record, link.start, event) for link in later)
    return () if begun or event.again == ABSENT else later


def works(record: ChainRecord, start: Seconds, event: LinkRequeued) -> bool:
    """Whether a later link that started then has begun its work, and does not wait for the job that runs again."""
    return start < event.again or not record.chain.one_writer


KINDS = {
    JobState.FAILED: FailureKind.EXIT,
    JobState.OUT_OF_MEMORY: FailureKind.EXIT,
    JobState.NODE_FAIL: FailureKind.NODE,
    JobState.BOOT_FAIL: FailureKind.NODE,
    JobState.PREEMPTED: FailureKind.NODE,
    JobState.CANCELLED: FailureKind.CANCELLED,
}
"""Ends of jobs that are failures of links, unless Mirage asked for them or Slurm had warned the job."""
PROGRESS_AFTER: Seconds = 3_600
"""Running time after which a failed link has made progress; half of the time limit where that is less."""

_AT_ONCE = 60
_FAILED_STARTS = 3
_BROKEN = (JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.NODE_FAIL, JobState.BOOT_FAIL)
"""Ends that recur; a preempted or cancelled link may have better luck."""


def made_progress(record: ChainRecord, link: Link) -> bool:
    """Whether the link ran so long that its failure is no crash at the start."""
    enough = min(PROGRESS_AFTER, record.chain.request.limit // 2)
    return link.started and link.end - link.start >= enough


def fails_to_start(record: ChainRecord) -> str:
    """Return why the chain has to pause, as further links would fail immediately; else empty."""
    last = [link for link in record.links if link.final][-_FAILED_STARTS:]
    if record.failures < _FAILED_STARTS or not all(_failed_at_once(link) for link in last):
        return ""
    how = f"{_FAILED_STARTS} links in a row failed within {_AT_ONCE} s of their start, or were lost before it"
    return f"{how}; fix the cause, then resume"


def links_have_run(links: Sequence[Link]) -> str:
    """Return why a chain with these links is done, with the number of failed links."""
    failed = sum(link.job_state in _BROKEN for link in links)
    return f"{len(links)} links have run" + (f", {failed} of them failed" if failed else "")


def ends_at_once(record: ChainRecord, warned: bool) -> str:
    """Why the chain is to pause, where link after link ends by itself as it starts; else empty.

    ``warned``: whether Slurm had warned the last of them of its limit. A link that Mirage asked to exit, that
    its limit ended or that went back to the queue is none of them.
    """
    last = [link for link in record.links if link.worked and link.final][-_FAILED_STARTS:]
    if len(last) < _FAILED_STARTS or not all(_left_at_once(record, link) for link in last):
        return ""
    codes = ", ".join(str(link.exit_code) for link in last)
    how = f"{_FAILED_STARTS} links in a row ended within {_AT_ONCE} s of their start (exit codes {codes})"
    if warned:
        return f"{how} after Slurm's warning of the limit; raise the time limit or shorten --signal, then resume"
    return f"{how}, but the chain is not done: {_awaited(record)}; check the links' output, then resume or cancel"


def may_be_over(record: ChainRecord, lost: Link) -> str:
    """Why the chain is to pause, where the unknown end of a link that ran may have ended it; else empty.

    Not where a later link has started: by then it was seen, or did not matter. A job that a user cancelled
    unseen does not count: it would stop every service.
    """
    policies = record.chain.failures
    stops = FailureAction.STOP in (policies.exit.recovery, policies.node.recovery)
    later = any(link.started for link in record.links[lost.index :])
    if later or (record.chain.done.exit_code is None and not stops):
        return ""
    return (
        f"the end of link {lost.index} (job {lost.job_id}) is unknown: neither Slurm nor accounting has the job; "
        "check its output, then `mirage chain resume` or `mirage chain cancel`"
    )


def failed_last(record: ChainRecord) -> bool:
    """Whether the last link that is over failed right at its start."""
    last = next((link for link in reversed(record.links) if link.final), None)
    return last is not None and last.started and _failed_at_once(last)


def _failed_at_once(link: Link) -> bool:
    if not link.started:  # one that is only unknown may have been cancelled by a user
        return link.job_state is JobState.NODE_FAIL
    broken = link.requeued or link.job_state in _BROKEN
    return broken and link.end - link.start <= _AT_ONCE


def job_failed_at_once(job: Job) -> bool:
    """Whether a job, as Slurm shows it, failed right at its start."""
    return job.state in _BROKEN and ABSENT < job.start <= job.end <= job.start + _AT_ONCE


def _left_at_once(record: ChainRecord, link: Link) -> bool:
    by_itself = link.job_state in (JobState.COMPLETED, *_BROKEN) and not (link.requeued or told_to_leave(link))
    return by_itself and link.end - link.start <= _AT_ONCE and not made_progress(record, link)


def _awaited(record: ChainRecord) -> str:
    """The condition that would end the chain and has not occurred."""
    done = record.chain.done
    exit_code = "no exit code ends it" if done.exit_code is None else f"exit code {done.exit_code} ends it"
    file = [f"file {done.file} does not exist"] if done.file else []
    links = [f"{done.links} links have to run"] if done.links else []
    total = [f"its links have to run for {done.total_time} s in total"] if done.total_time else []
    return ", ".join([exit_code, *file, *links, *total])


def suffices(record: ChainRecord) -> str:
    """A sentence when the links on the cluster complete the chain, else empty."""
    done, ran = record.chain.done, [link for link in record.links if link.worked]
    if done.links and len(ran) >= done.links:
        return f"link {ran[-1].index} is the last of {done.links}"
    if done.total_time and _running_time(ran) >= done.total_time:
        return f"link {ran[-1].index} completes the total time of {done.total_time} s"
    return ""


def done_if_enough(record: ChainRecord) -> ChainRecord:
    """Done when there were enough links, or enough running time; however the last one ended."""
    final = [link for link in record.links if link.worked and link.final]
    done = record.chain.done
    if done.links and len(final) >= done.links:
        return replace(record, status=ChainStatus.DONE, reason=links_have_run(final))
    if done.total_time and _running_time(final) >= done.total_time:
        return replace(record, status=ChainStatus.DONE, reason=f"ran for {_running_time(final)} s in all")
    return record


def _running_time(links: list[Link]) -> Seconds:
    """Seconds the links ran, those still running taken to their limit."""
    return sum(link.end - link.start for link in links)

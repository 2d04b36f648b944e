"""Which ends of a link count as failures in a row. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.failurepolicy import FailureKind, Recovery
from mirage.domain.job import ABSENT, JobState
from mirage.provisioner.handover import told_to_leave

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job, Seconds
    from mirage.domain.link import Link

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
    stops = Recovery.STOP in (policies.exit.recovery, policies.node.recovery)
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

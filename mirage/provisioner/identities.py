"""Which jobs are a chain's own: known properties of each link's job, and tagged jobs of unknown origin. Pure.

No other job with a link's ID may be taken for it; another user may be submitting jobs with the chain's tag.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, NEVER, JobState
from mirage.domain.link import NO_JOB, LinkIdentity, LinkState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job, JobId
    from mirage.domain.link import Link
    from mirage.domain.snapshot import Snapshot


class TaggedJobs:
    """The jobs of a snapshot that are not over, by the chain that their tag names."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._by_chain: defaultdict[str, list[Job]] = defaultdict(list)
        for job in (*snapshot.links.values(), *snapshot.rivals):
            if not job.state.finished:
                self._by_chain[job.tag.rpartition(":")[0]].append(job)

    def unknown_to(self, record: ChainRecord) -> tuple[Job, ...]:
        """The owner's jobs with the chain's tag that are none of the record's links."""
        if not (jobs := self._of(record)):
            return ()
        known = {link.job_id for link in record.links}
        return tuple(job for job in jobs if job.job_id not in known)

    def returned_to(self, record: ChainRecord) -> tuple[Job, ...]:
        """The owner's jobs of links that had ended: requeued since, or a controller forgot that they had ended.

        Also those of lost links of a chain that is over with all that ran: they had not ended.
        """
        if not (jobs := self._of(record)):
            return ()
        last = {link.job_id: link for link in record.links}
        back = [job for job in jobs if job.job_id in last and _is_back(last[job.job_id], job)]
        unended = [link.job_id for link in record.links if link.state is LinkState.LOST and record.cancel_running]
        return tuple(job for job in jobs if job in back or job.job_id in unended)

    def _of(self, record: ChainRecord) -> list[Job]:
        jobs = self._by_chain.get(record.chain.tag(0).rpartition(":")[0], ())
        return [job for job in jobs if job.user == record.chain.owner]


def _is_back(link: Link, job: Job) -> bool:
    """Whether the job waits or runs again; one whose nodes are still cleaned up shows the run that is known.

    A controller that starts with an older state has the job as it was then, with the same submit time.
    """
    anew = ABSENT < link.job_submit < job.submit or job.state is JobState.PENDING
    return link.final and (anew or (job.start != ABSENT and job.start > link.start))


def unsettled(record: ChainRecord, snapshot: Snapshot, returned: Sequence[Job]) -> str:
    """Why nothing is decided about the chain in this cycle; empty: nothing is against it."""
    if unknown := [link.index for link in record.live if link.tag in snapshot.unaccounted]:
        return f"link {unknown[0]} is not in the queue, and its end is unknown; run mirage doctor"
    if returned and record.chain.one_writer:
        return f"job {returned[0].job_id} of an ended link is in the queue again and is being cancelled"
    return ""


def in_doubt(record: ChainRecord, link: Link) -> str:
    """Why a link that was sent, and that no snapshot shows, may not be sent again; empty: it may.

    Where comments are replaced its job may be in the queue without its mark. Its owner knows: once the chain is
    resumed, it is sent again.
    """
    if not record.unmarked or record.not_before > link.planned:
        return ""
    return (
        f"link {link.index} was submitted, but its job cannot be identified: the comments of this chain's jobs "
        f"are replaced (run mirage doctor). Cancel each job named {record.chain.request.name} that squeue shows "
        "and mirage chain show does not; then resume the chain"
    )


def sent_twice(record: ChainRecord, job: Job) -> bool:
    """Whether the job is one of ours: its link was submitted again because no answer had come."""
    return bool(record.resent) and job.tag == record.chain.tag(record.resent)


def to_withdraw(record: ChainRecord, foreign: Sequence[Job]) -> tuple[Link, ...]:
    """Our links that must not overlap with jobs submitted elsewhere: if two run, the later one is cancelled.

    Two daemons on copies of one store come to the same answer, so one job continues.
    """
    if not record.chain.one_writer:
        return ()
    running = [job.job_id for job in foreign if job.state is not JobState.PENDING]
    first = min(running, default=NEVER)
    links = [link for link in record.live if link.job_id != NO_JOB and not link.is_retired]
    return tuple(link for link in links if link.job_id > first or not link.running)


def why_pause(rivals: Sequence[Job], *, released: bool = False) -> str:
    """Why a chain is paused next to which such jobs are in the queue.

    ``released``: links are held jobs that Mirage releases, so these are held links that another user released.
    """
    shown = ", ".join(str(job.job_id) for job in rivals[:3]) + (", ..." if len(rivals) > 3 else "")
    if released:
        return f"held links were released outside of Mirage: {shown}; hold or cancel them, then resume the chain"
    what = f"jobs with this chain's tag that this daemon did not submit: {shown}"
    return (
        f"{what}; if another daemon uses a copy of this database, stop it; cancel the jobs, then resume the chain"
    )


def expected_jobs(records: Iterable[ChainRecord]) -> dict[str, JobId]:
    """The job IDs of the links that must be accounted for, by tag; ``NO_JOB`` where it is not known."""
    return {link.tag: link.job_id for record in records for link in record.live}


def identities(records: Iterable[ChainRecord], *, released: bool) -> dict[str, LinkIdentity]:
    """The live links that have a job ID, by tag. ``released``: links are jobs that were submitted long before."""
    return {
        link.tag: _identity(record, link, released=released)
        for record in records
        for link in record.live
        if link.job_id != NO_JOB
    }


def as_seen(record: ChainRecord, snapshot: Snapshot) -> ChainRecord:
    """The record with what the snapshot shows of live links: Slurm's submit times, and whether marks are lost."""
    shown = set[str]()
    for link in record.live:
        job = snapshot.link(link.tag, record.chain.owner)
        if job is not None and not job.state.finished:
            shown.add(link.tag)
        if job is None or job.job_id != link.job_id or job.submit in (ABSENT, link.job_submit):
            continue
        if job.runs_untold:  # a later snapshot shows them, because the job's time is not the one stored
            continue
        # Slurm may have taken a job long after it was sent.
        submit = max(link.submit, job.submit) if link.job_submit == ABSENT else link.submit
        record = record.with_link(replace(link, submit=submit, job_submit=job.submit))
    if shown and record.unmarked is shown.isdisjoint(snapshot.unmarked):
        record = replace(record, unmarked=not record.unmarked)
    return record


def _identity(record: ChainRecord, link: Link, *, released: bool) -> LinkIdentity:
    request = record.chain.request
    sent = ABSENT if released else link.submit
    return LinkIdentity(link.tag, record.chain.owner, request.name, request.partition, link.job_submit, sent)

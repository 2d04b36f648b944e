"""Events of a chain's links since the last snapshot, derived from a new one. Pure.

``str`` of an event is its sentence for the journal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.domain.bounds import format_instant
from mirage.domain.job import ABSENT, JobState
from mirage.domain.link import LinkState
from mirage.provisioner.failures import ended_run, works

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job, JobId, Seconds
    from mirage.domain.link import Link
    from mirage.domain.snapshot import Snapshot

GIVE_UP_AFTER = 3_600
"""Seconds after which a planned link of a chain that is over is no longer looked for."""


@dataclass(frozen=True, slots=True)
class LinkPlanned:
    """The decision to submit the next link; stored before the cluster is asked."""

    reason: str

    def __str__(self) -> str:
        return f"the next link is planned: {self.reason}"


@dataclass(frozen=True, slots=True)
class LinkSubmitted:
    """The cluster has a job with this link's tag. ``index`` may be one beyond the links known: adopted."""

    index: int
    job_id: JobId
    submit: Seconds

    def __str__(self) -> str:
        return f"link {self.index} is job {self.job_id}, submitted at {self.submit}"


@dataclass(frozen=True, slots=True)
class LinkMissed:
    """A snapshot made after the link was planned lacks it: it is on its way, or it never left."""

    index: int

    def __str__(self) -> str:
        return f"link {self.index} was submitted, but Slurm does not show it"


@dataclass(frozen=True, slots=True)
class LinkQueued:
    """A poll has seen the submitted job pending."""

    index: int

    def __str__(self) -> str:
        return f"link {self.index} is pending"


@dataclass(frozen=True, slots=True)
class LinkRequeued:
    """A job that ran is in the queue again; that run is over."""

    index: int
    end: Seconds
    submit: Seconds
    """When it was put into the queue again."""
    again: Seconds = ABSENT
    """When it started again, if it runs already; that run is the next link."""

    def __str__(self) -> str:
        return f"link {self.index} ended at {format_instant(self.end)}: its job was requeued"


@dataclass(frozen=True, slots=True)
class LinkStarted:
    """The job runs; ``end`` is when its limit ends it."""

    index: int
    start: Seconds
    end: Seconds
    limit: Seconds = ABSENT
    """The job's own time limit now."""

    def __str__(self) -> str:
        limit = "its time limit is unknown"
        if self.end != ABSENT:
            limit = f"its time limit ends it at {format_instant(self.end)}"
        return f"link {self.index} started at {format_instant(self.start)}, {limit}"


@dataclass(frozen=True, slots=True)
class LinkSuspended:
    """Slurm has stopped the running link, and keeps its job (``scontrol suspend``, gang scheduling)."""

    index: int
    since: Seconds
    """When a snapshot first showed it."""

    def __str__(self) -> str:
        return f"link {self.index} is suspended"


@dataclass(frozen=True, slots=True)
class LinkResumed:
    """A suspended link runs again."""

    index: int
    at: Seconds

    def __str__(self) -> str:
        return f"link {self.index} is resumed"


@dataclass(frozen=True, slots=True)
class LinkRetired:
    """Mirage asked the link to exit: a later one has taken over."""

    index: int
    reason: str

    def __str__(self) -> str:
        return f"link {self.index} is to exit: {self.reason}"


@dataclass(frozen=True, slots=True)
class LinkEnded:
    """The job has left the queue; ``start`` is ``ABSENT`` when it never ran."""

    index: int
    start: Seconds
    end: Seconds
    state: JobState
    exit_code: int
    limit: Seconds = ABSENT
    """The job's own time limit at its end."""

    def __str__(self) -> str:
        return (
            f"link {self.index} ended at {format_instant(self.end)}: {self.state.name}, exit code {self.exit_code}"
        )


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The cluster had the job and does not know it any more."""

    index: int

    def __str__(self) -> str:
        return f"link {self.index} is no longer known to Slurm"


@dataclass(frozen=True, slots=True)
class LinkReturned:
    """The job of a lost link is shown again, in the run that was known: it had never ended."""

    index: int
    start: Seconds
    end: Seconds
    limit: Seconds = ABSENT

    def __str__(self) -> str:
        return f"link {self.index} is known to Slurm again: it has run since {format_instant(self.start)}"


@dataclass(frozen=True, slots=True)
class LinkRejected:
    """The cluster rejected the planned link: it was never submitted."""

    index: int
    reason: str
    pause: Seconds
    """Seconds until the next try."""
    counts: bool = True
    """Whether the chain itself may cause it: consecutive rejections of this kind lengthen its pauses."""
    by_slurm: bool = True
    """Whether Slurm rejected it; else Mirage could not submit as the owner."""
    permanent: bool = False
    """Whether no retry can fix it."""
    pauses: bool = False
    """Whether the chain pauses now."""

    def __str__(self) -> str:
        return f"link {self.index} was rejected: {self.reason}"


@dataclass(frozen=True, slots=True)
class DoneFileSeen:
    """The file that ends the chain exists."""

    def __str__(self) -> str:
        return "the done file exists"


@dataclass(frozen=True, slots=True)
class PauseAsked:
    """No further link until resumed; by the user or by the limits."""

    reason: str

    def __str__(self) -> str:
        return f"paused: {self.reason}"


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    """Continue; rejections are forgotten."""

    def __str__(self) -> str:
        return "resumed"


@dataclass(frozen=True, slots=True)
class RefusalsForgiven:
    """An administrator says that rejections are over."""

    def __str__(self) -> str:
        return "rejections are forgotten"


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """The user wants the chain gone, running links too."""

    def __str__(self) -> str:
        return "cancelled by its owner"


Event = (
    LinkPlanned
    | LinkSubmitted
    | LinkMissed
    | LinkQueued
    | LinkRequeued
    | LinkStarted
    | LinkSuspended
    | LinkResumed
    | LinkRetired
    | LinkEnded
    | LinkLost
    | LinkReturned
    | LinkRejected
    | DoneFileSeen
    | PauseAsked
    | ResumeAsked
    | RefusalsForgiven
    | CancelAsked
)


def link_events(
    record: ChainRecord, snapshot: Snapshot, done_file_seen: bool = False, *, adopts: bool = True
) -> tuple[Event, ...]:
    """The events that bring ``record`` up to what ``snapshot`` shows, in order; none when it is stale.

    ``adopts``: whether links are among them that the record does not know.

    Derived again each cycle from the tags alone, so that nothing depends on what an earlier cycle, or an
    earlier process, managed to write down.
    """
    if snapshot.stale:
        return ()
    events: list[Event] = []
    for link in record.links:
        if link.state is LinkState.LOST:
            events += _returned(link, snapshot.link(link.tag, record.chain.owner))
        elif not link.final and link.tag not in snapshot.unaccounted:
            for event in _of_link(link, snapshot.link(link.tag, record.chain.owner), snapshot.time):
                if isinstance(event, LinkRequeued) and _works_after(record, event, snapshot):
                    events.append(replace(event, again=ABSENT))
                else:
                    events.append(event)
            if record.over and _never_came(link, snapshot, record.chain.owner):
                events.append(LinkLost(link.index))
    if adopts:
        events += _adopted(record, snapshot)
    if done_file_seen and not record.over:
        events.append(DoneFileSeen())
    return tuple(events)


def _works_after(record: ChainRecord, event: LinkRequeued, snapshot: Snapshot) -> bool:
    """Whether the snapshot shows a later link that has begun its work; the record may not know yet."""
    for link in record.links[event.index :]:
        job = snapshot.link(link.tag, record.chain.owner)
        started = job is not None and job.start != ABSENT and job.state is not JobState.PENDING
        if job is not None and started and works(record, job.start, event):
            return True
    return False


def _of_link(link: Link, job: Job | None, now: Seconds) -> Iterator[Event]:
    if job is None:
        if link.state is not LinkState.PLANNED:
            yield LinkLost(link.index)
        elif link.missed == ABSENT:
            yield LinkMissed(link.index)
        return
    if link.state is LinkState.PLANNED:
        yield LinkSubmitted(link.index, job.job_id, job.submit)
    run = ended_run(link, job, now)
    if run is None:
        yield from _progress(link.index, link, job)
        yield from _suspension(link, job, now)
        return
    if not link.running:
        yield LinkStarted(link.index, run.start, run.start + max(job.limit, 0), job.limit)
    # What became of the job since is for the next snapshot, but whether it runs decides which of the links exits.
    again = job.start if job.state in (JobState.RUNNING, JobState.SUSPENDED) else ABSENT
    yield LinkRequeued(link.index, run.end, run.submit, again)


def _returned(link: Link, job: Job | None) -> Iterator[Event]:
    if job is None or job.job_id != link.job_id or job.state not in (JobState.RUNNING, JobState.SUSPENDED):
        return
    if link.started and job.start == link.start:
        yield LinkReturned(link.index, job.start, job.end, job.limit)


def _never_came(link: Link, snapshot: Snapshot, owner: str) -> bool:
    overdue = link.state is LinkState.PLANNED and snapshot.time - link.planned > GIVE_UP_AFTER
    return overdue and snapshot.link(link.tag, owner) is None


def _progress(index: int, link: Link | None, job: Job) -> Iterator[Event]:
    if job.state.finished:
        end = job.end if job.end != ABSENT else max(job.start, job.submit)
        yield LinkEnded(index, job.start, end, job.state, job.exit_code, job.limit)
    elif job.state is JobState.PENDING:
        if link is None or link.state is not LinkState.PENDING:
            yield LinkQueued(index)
    elif job.start == ABSENT:  # on its way to or from its nodes
        if link is None or link.state is LinkState.SUBMITTED:
            yield LinkQueued(index)
    elif link is not None and link.requeued and not link.running:
        # It runs again, though it is to be cancelled.
        yield LinkRequeued(index, link.end, link.job_submit, job.start)
    elif link is None or not link.running or (link.end != job.end and not _is_being_requeued(link, job)):
        yield LinkStarted(index, job.start, job.end, job.limit)


def _suspension(link: Link, job: Job, now: Seconds) -> Iterator[Event]:
    if job.state is JobState.SUSPENDED and link.suspended == ABSENT:
        yield LinkSuspended(link.index, now)
    elif job.state is JobState.RUNNING and link.suspended != ABSENT:
        yield LinkResumed(link.index, now)


def _is_being_requeued(link: Link, job: Job) -> bool:
    """Whether the run is over: a job that leaves its nodes for the queue is shown with another start and end."""
    return link.requeued or job.start > link.start


def _adopted(record: ChainRecord, snapshot: Snapshot) -> Iterator[Event]:
    """Jobs with the tags that would come next: submitted by a process whose records were lost."""
    index = record.next_index
    while (job := snapshot.link(record.chain.tag(index), record.chain.owner)) is not None:
        yield from adopted(index, job)
        index += 1


def adopted(index: int, job: Job) -> Iterator[Event]:
    """Identity of a job as the link ``index``, which is the next of a record."""
    yield LinkSubmitted(index, job.job_id, job.submit)
    yield from _progress(index, None, job)

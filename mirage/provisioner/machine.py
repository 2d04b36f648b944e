"""The chain state machine: events in, a new record out; from a record, what it needs. No IO, no clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainRecord, ChainStatus, Steering
from mirage.domain.failurepolicy import FailureAction, FailureKind
from mirage.domain.job import ABSENT, JobState, Seconds
from mirage.domain.link import Link, LinkState
from mirage.provisioner.events import (
    CancelAsked,
    DoneFileSeen,
    Event,
    LinkEnded,
    LinkLost,
    LinkMissed,
    LinkPlanned,
    LinkQueued,
    LinkRejected,
    LinkRequeued,
    LinkResumed,
    LinkRetired,
    LinkReturned,
    LinkStarted,
    LinkSubmitted,
    LinkSuspended,
    PauseAsked,
    RefusalsForgiven,
    ResumeAsked,
)
from mirage.provisioner.failures import (
    KINDS,
    done_if_enough,
    ends_at_once,
    fails_to_start,
    made_progress,
    may_be_over,
    requeued,
    suffices,
)
from mirage.provisioner.handover import before, let_run, told_to_leave, waited_out
from mirage.provisioner.rejections import forgive_lost, paused, room_again, sent_again
from mirage.provisioner.service import service_of, standing_counted
from mirage.provisioner.steering import left_bound, limit_end, steerable, was_warned, with_limit

if TYPE_CHECKING:
    from collections.abc import Iterable

_RAN = (JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY)


@dataclass(frozen=True, slots=True)
class NoAction:
    """The result when there is nothing to decide, with the reason."""

    reason: str
    because: str = ""
    """The condition on which the pending link waits: its reason at submission."""


@dataclass(frozen=True, slots=True)
class Resubmit:
    """A link was planned and has not shown up: its submission never reached the cluster."""

    link: Link


@dataclass(frozen=True, slots=True)
class Successor:
    """The predictor decides when to submit the next link (immediately if ``predecessor`` does not run)."""

    predecessor: Link | None


@dataclass(frozen=True, slots=True)
class SubmitHeld:
    """The next link may be submitted now, held, so that it ages while its predecessor runs."""

    predecessor: Link


@dataclass(frozen=True, slots=True)
class Steer:
    """The successor is pending and may be held or released."""

    link: Link
    predecessor: Link | None


Need = NoAction | Resubmit | Successor | SubmitHeld | Steer


def _together(record: ChainRecord) -> list[str]:
    """Return the links that run at the same time; a suspended one exits once it is resumed."""
    away = [link for link in record.links if link.suspended != ABSENT and not record.chain.one_writer]
    return [str(link.index) for link in record.links if link.running and not link.is_retired and link not in away]


def apply_all(record: ChainRecord, events: Iterable[Event], now: Seconds) -> ChainRecord:
    """The record after all events, in order."""
    for event in events:
        record = apply(record, event, now)
    return record


def apply(record: ChainRecord, event: Event, now: Seconds) -> ChainRecord:
    """The record after one event. ``TypeError`` for something that is not an event."""
    after = _apply(event, standing_counted(record, event, now), now)
    if not after.over or record.over:
        return after
    after = _forgiven(after)
    if isinstance(event, LinkEnded | LinkLost | LinkRequeued):
        return replace(after, ended_by=event.index)
    return replace(after, lost=service_of(record, now).interruption)


def status_text(record: ChainRecord) -> str:
    """The status of a chain that is not active, and its reason."""
    return f"{record.status}: {record.reason}"


def need(record: ChainRecord, now: Seconds, settle: Seconds, contact: Seconds = 0) -> Need:
    """The step that the chain needs at ``now``; ``settle``, ``contact``: see ``sent_again``."""
    if record.status is not ChainStatus.ACTIVE:
        bound = left_bound(record)
        return Steer(bound, before(record, bound)) if bound else NoAction(status_text(record))
    if waiting := record.waiting:
        if steerable(record, waiting):
            return Steer(waiting, before(record, waiting) if record.chain.one_writer else record.head)
        return _await(record, waiting, now, settle, contact)
    if none := suffices(record) or _withdrawing(record):
        return NoAction(none)
    if len(together := _together(record)) > 1:
        return NoAction(f"links {' and '.join(together)} run; the next link is submitted after one of them ends")
    if record.chain.method is not Steering.HOLD and (reason := let_run(record, now)):
        return NoAction(reason)
    if record.head and record.chain.method is not Steering.OFF:
        return SubmitHeld(record.head)
    started = [link for link in record.links if link.started]
    return Successor(record.head or (started[-1] if started else None))


def plan(record: ChainRecord, reason: str, now: Seconds) -> tuple[ChainRecord, Link]:
    """The record with the next link planned, and that link. ``AssertionError`` when one already waits."""
    record = apply(record, LinkPlanned(reason), now)
    return record, record.links[-1]


def _await(record: ChainRecord, link: Link, now: Seconds, settle: Seconds, contact: Seconds) -> Need:
    if link.state is not LinkState.PLANNED:
        behind = link.unpinned and record.head is not None  # else what it waited for is over
        return NoAction(f"link {link.index} is {link.state}", link.reason if behind else "")
    if now >= sent_again(link, settle, contact):
        return Resubmit(link)
    return NoAction(f"link {link.index} was submitted, but Slurm does not show it yet")


def _withdrawing(record: ChainRecord) -> str:
    """A sentence while a link of one writer that is not to run may still start, else empty."""
    links = [link.index for link in record.live if link.is_retired and not link.running]
    if not links or not record.chain.one_writer:
        return ""
    return f"link {links[0]} is being cancelled; the next link is submitted once its job is gone"


@singledispatch
def _apply(event: object, record: ChainRecord, now: Seconds) -> ChainRecord:
    raise TypeError(f"not an event: {event!r}")


@_apply.register
def _(event: LinkPlanned, record: ChainRecord, now: Seconds) -> ChainRecord:
    assert record.waiting is None, f"{record.waiting} already waits"
    index = record.next_index
    link = Link(index, record.chain.tag(index), now, reason=event.reason)
    return replace(record, links=(*record.links, link))


@_apply.register
def _(event: LinkSubmitted, record: ChainRecord, now: Seconds) -> ChainRecord:
    if event.index == record.next_index:
        link = Link(event.index, record.chain.tag(event.index), event.submit, reason="found on the cluster")
    else:
        link = record.links[event.index - 1]
    link = replace(link, state=LinkState.SUBMITTED, job_id=event.job_id, submit=event.submit)
    return _forgiven(record.with_link(link))


@_apply.register
def _(event: LinkMissed, record: ChainRecord, now: Seconds) -> ChainRecord:
    return record.with_link(replace(record.links[event.index - 1], missed=now))


@_apply.register
def _(event: LinkQueued, record: ChainRecord, now: Seconds) -> ChainRecord:
    link = record.links[event.index - 1]
    return record.with_link(replace(link, state=LinkState.PENDING, start=ABSENT, end=ABSENT))


@_apply.register
def _(event: LinkRequeued, record: ChainRecord, now: Seconds) -> ChainRecord:
    record = requeued(record, event, now)
    link = record.links[event.index - 1]
    if record.over or not link.final:
        return record
    lasted = was_warned(record, link) or made_progress(record, link)
    return _go_on(record) if lasted else _failed(record, link, FailureKind.NODE, now)


@_apply.register
def _(event: LinkStarted, record: ChainRecord, now: Seconds) -> ChainRecord:
    link = record.links[event.index - 1]
    if link.requeued:  # its run is over; its job must not run again
        return record.with_link(replace(link, state=LinkState.RUNNING))
    limited = with_limit(record, event, max(limit_end(record, event), event.end), now)
    running = replace(limited, state=LinkState.RUNNING, end=event.end, job_state=JobState.RUNNING)
    return record.with_link(replace(running, retired=ABSENT, withdrawn=False) if link.withdrawn else running)


@_apply.register
def _(event: LinkSuspended | LinkResumed, record: ChainRecord, now: Seconds) -> ChainRecord:
    since = event.since if isinstance(event, LinkSuspended) else ABSENT
    return record.with_link(replace(record.links[event.index - 1], suspended=since))


@_apply.register
def _(event: LinkRetired, record: ChainRecord, now: Seconds) -> ChainRecord:
    return record.with_link(replace(record.links[event.index - 1], retired=now))


@_apply.register
def _(event: LinkEnded, record: ChainRecord, now: Seconds) -> ChainRecord:
    link = _ended(record, event)
    link = replace(link, waited=waited_out(record, link))
    record = room_again(record.with_link(link))
    if link.waited and not record.over:
        return _cancelled_pending(record, link, now) if link.job_state is JobState.CANCELLED else record
    if record.over:
        return _done(record, link) if _completes_after_all(record, link) else record
    if told_to_leave(link):
        return _go_on(record) if link.started else record
    if _completes(record, link):
        return _done(record, link)
    kind = KINDS.get(event.state)
    if kind is None or (kind is FailureKind.EXIT and was_warned(record, link)):
        record = _go_on(record)
        why = "" if record.over else ends_at_once(record, was_warned(record, link))
        return paused(record, why, now) if why else record
    policy = record.chain.failures.of(kind)
    if kind is FailureKind.CANCELLED and not link.started and policy.recovery is FailureAction.STOP:
        return _cancelled_pending(record, link, now)
    return _failed(record, link, kind, now)


@_apply.register
def _(event: LinkLost, record: ChainRecord, now: Seconds) -> ChainRecord:
    """Slurm has forgotten the job, and accounting has no record of its end: none is made up."""
    link = record.links[event.index - 1]
    ran, at_limit = link.running, link.running and ABSENT < link.end <= now  # its limit ended it at the latest
    end = link.end if link.requeued or at_limit else now if link.started else ABSENT
    link = replace(link, state=LinkState.LOST, end=end)
    record = record.with_link(link)
    if record.over or (told_to_leave(link) and not at_limit):
        return record
    if ran and not told_to_leave(link) and (why := may_be_over(record, link)):
        return paused(record, why, now)
    return _go_on(record) if at_limit else _failed(record, link, FailureKind.NODE, now)


@_apply.register
def _(event: LinkReturned, record: ChainRecord, now: Seconds) -> ChainRecord:
    """It is a link as before; its successor still waits for its end, or takes over from it."""
    return apply(record, LinkStarted(event.index, event.start, event.end, event.limit), now)


@_apply.register
def _(event: LinkRejected, record: ChainRecord, now: Seconds) -> ChainRecord:
    """A link that never existed leaves no trace but the count; its index and tag are free again."""
    assert record.links[-1].index == event.index
    assert record.links[-1].state is LinkState.PLANNED
    refusals = record.refusals + event.counts
    record = replace(record, links=record.links[:-1], refusals=refusals, not_before=now + event.pause)
    if not event.by_slurm:
        return record
    since = now if record.refused == ABSENT else record.refused_since
    permanent = record.permanent + (event.permanent and event.counts)
    record = replace(record, refused_since=since, refused=now, rejection=event.reason, permanent=permanent)
    if not event.pauses:
        return record
    text = f"Slurm rejects link {event.index}: {event.reason}; correct the cause, then `mirage chain resume`"
    return paused(record, text, now)


@_apply.register
def _(event: DoneFileSeen, record: ChainRecord, now: Seconds) -> ChainRecord:
    return replace(record, status=ChainStatus.DONE, reason=f"{record.chain.done.file} exists")


@_apply.register
def _(event: PauseAsked, record: ChainRecord, now: Seconds) -> ChainRecord:
    return record if record.over else replace(paused(record, event.reason, now), reason=event.reason)


@_apply.register
def _(event: ResumeAsked, record: ChainRecord, now: Seconds) -> ChainRecord:
    if record.status is not ChainStatus.PAUSED:
        return record
    record = replace(record, status=ChainStatus.ACTIVE, reason="", paused=ABSENT, failures=0, not_before=now)
    return _forgiven(forgive_lost(record))


@_apply.register
def _(event: RefusalsForgiven, record: ChainRecord, now: Seconds) -> ChainRecord:
    return record if record.refused == ABSENT else replace(_forgiven(record), not_before=now)


@_apply.register
def _(event: CancelAsked, record: ChainRecord, now: Seconds) -> ChainRecord:
    over = replace(record, status=ChainStatus.STOPPED, reason="cancelled by its owner", cancel_running=True)
    return replace(over, cancelled=now)


def _ended(record: ChainRecord, event: LinkEnded) -> Link:
    link = record.links[event.index - 1]
    if link.requeued:
        return replace(link, state=LinkState.ENDED)
    if event.start == ABSENT and link.running and event.state in _RAN:  # accounting has lost its start
        event = replace(event, start=link.start)
    return replace(
        with_limit(record, event, limit_end(record, event), event.end),
        state=LinkState.ENDED,
        end=event.end,
        job_state=event.state,
        exit_code=event.exit_code,
    )


def _forgiven(record: ChainRecord) -> ChainRecord:
    return replace(record, refusals=0, refused_since=ABSENT, refused=ABSENT, rejection="", permanent=0)


def _completes(record: ChainRecord, link: Link) -> bool:
    """Whether the link's exit code is the one that ends the chain.

    A link that ends with 0 after Slurm has warned it of its limit has executed the warning; that is no word on
    whether the work is done. Another code that its owner has named is.
    """
    exited = link.job_state in (JobState.COMPLETED, JobState.FAILED)
    says_done = exited and link.exit_code == record.chain.done.exit_code
    return says_done and (link.exit_code != 0 or not was_warned(record, link))


def _completes_after_all(record: ChainRecord, link: Link) -> bool:
    """Whether a link has completed a chain that an earlier one had stopped: it was in the queue by then."""
    later = 0 < record.ended_by < link.index
    return record.status is ChainStatus.STOPPED and later and _completes(record, link)


def _done(record: ChainRecord, link: Link) -> ChainRecord:
    text = f"link {link.index} ended with exit code {link.exit_code}"
    return replace(record, status=ChainStatus.DONE, reason=text, cancel_running=True)


def _go_on(record: ChainRecord) -> ChainRecord:
    """After a link that ended as links do."""
    return done_if_enough(replace(record, failures=0))


def _failed(record: ChainRecord, link: Link, kind: FailureKind, now: Seconds) -> ChainRecord:
    """After a link that failed; one that had made progress begins the count again, with one failure's pause."""
    policy = record.chain.failures.of(kind)
    if made_progress(record, link) and policy.recovery is not FailureAction.STOP:
        return done_if_enough(replace(record, failures=0, not_before=now + policy.pause(1)))
    failures = record.failures + 1
    if policy.gives_up(failures):
        how = "was cancelled" if kind is FailureKind.CANCELLED else f"failed ({kind}), failure {failures} in a row"
        record = replace(record, failures=failures)
        works = [other.index for other in record.links if other.running and not other.is_retired]
        if works and policy.recovery is FailureAction.RETRY:
            fix = f"link {works[-1]} still runs: correct the cause, then run `mirage chain resume`"
            return paused(record, f"link {link.index} {how}; {fix}", now)
        return replace(record, status=ChainStatus.STOPPED, reason=f"link {link.index} {how}")
    record = done_if_enough(replace(record, failures=failures, not_before=now + policy.pause(failures)))
    if record.over or policy.recovery is not FailureAction.CONTINUE or not (why := fails_to_start(record)):
        return record
    return paused(record, why, now)


def _cancelled_pending(record: ChainRecord, link: Link, now: Seconds) -> ChainRecord:
    """A user cancelled this job but not the running link: pause until the owner resumes the chain."""
    text = f"job {link.job_id} was cancelled while pending; to continue, run `mirage chain resume`"
    return paused(record, text, now)

"""The chain state machine: events in, a new record out; from a record, what it needs. No IO, no clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING

from mirage.domain.chain import NO_JOB, ChainRecord, ChainStatus, FailureKind, Link, LinkState, Recovery, Steering
from mirage.domain.job import ABSENT, JobState, Seconds
from mirage.provisioner.events import (
    CancelAsked,
    DoneFileSeen,
    Event,
    LinkEnded,
    LinkLost,
    LinkPlanned,
    LinkQueued,
    LinkRefused,
    LinkRetired,
    LinkStarted,
    LinkSubmitted,
    PauseAsked,
    RefusalsForgiven,
    ResumeAsked,
)
from mirage.provisioner.steering import steerable

if TYPE_CHECKING:
    from collections.abc import Iterable

_FAILURES = {
    JobState.FAILED: FailureKind.EXIT,
    JobState.OUT_OF_MEMORY: FailureKind.EXIT,
    JobState.NODE_FAIL: FailureKind.NODE,
    JobState.BOOT_FAIL: FailureKind.NODE,
    JobState.PREEMPTED: FailureKind.NODE,
    JobState.CANCELLED: FailureKind.CANCELLED,
}
_BROKEN = (JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.NODE_FAIL, JobState.BOOT_FAIL)
"""Ends that will come again; who is preempted or cancelled may have better luck."""

_WARNED_EARLY = 60
_AT_ONCE = 60
_FAILED_STARTS = 3


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to decide, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resubmit:
    """A link was planned and has not shown up: its submission never reached the cluster."""

    link: Link


@dataclass(frozen=True, slots=True)
class Successor:
    """The next link is to be timed (or submitted at once when ``predecessor`` does not run)."""

    predecessor: Link | None


@dataclass(frozen=True, slots=True)
class Bid:
    """The next link may go into the queue at once, held back, so that it ages while its predecessor runs."""

    predecessor: Link


@dataclass(frozen=True, slots=True)
class Steer:
    """The successor waits in the queue and may be held back or let go."""

    link: Link
    predecessor: Link | None


Need = Rest | Resubmit | Successor | Bid | Steer


def apply_all(record: ChainRecord, events: Iterable[Event], now: Seconds) -> ChainRecord:
    """The record after all events, in order."""
    for event in events:
        record = apply(record, event, now)
    return record


def apply(record: ChainRecord, event: Event, now: Seconds) -> ChainRecord:
    """The record after one event. ``TypeError`` for something that is not an event."""
    return _apply(event, record, now)


def need(record: ChainRecord, now: Seconds, settle: Seconds, contact: Seconds = 0) -> Need:
    """What the chain needs at ``now``.

    ``settle``: seconds after which a planned link that no snapshot shows counts as never submitted. They count
    from ``contact``, the instant since which the cluster has answered without a break, where that is later: a
    controller that was away may have our question still before it.
    """
    if record.status is not ChainStatus.ACTIVE:
        return Rest(f"{record.status}: {record.reason}")
    if waiting := record.waiting:
        if steerable(record, waiting):
            return Steer(waiting, record.head)
        return _await(waiting, now, settle, contact)
    if last := _suffices(record):
        return Rest(last)
    if len(together := [str(link.index) for link in record.links if link.running and not link.is_retired]) > 1:
        return Rest(f"links {' and '.join(together)} run; the next one waits until one of them has ended")
    if record.head and record.chain.steering is not Steering.OFF:
        return Bid(record.head)
    started = [link for link in record.links if link.started]
    return Successor(record.head or (started[-1] if started else None))


def to_cancel(record: ChainRecord) -> tuple[Link, ...]:
    """Links of a chain that is over whose jobs have no business on the cluster any more."""
    if not record.over:
        return ()
    return tuple(
        link for link in record.live if link.job_id != NO_JOB and (not link.running or record.cancel_running)
    )


def plan(record: ChainRecord, reason: str, now: Seconds) -> tuple[ChainRecord, Link]:
    """The record with the next link planned, and that link. ``AssertionError`` when one already waits."""
    record = apply(record, LinkPlanned(reason), now)
    return record, record.links[-1]


def _await(link: Link, now: Seconds, settle: Seconds, contact: Seconds) -> Need:
    if link.state is not LinkState.PLANNED:
        return Rest(f"link {link.index} is {link.state}")
    if now - max(link.planned, contact) >= settle:
        return Resubmit(link)
    return Rest(f"link {link.index} was sent, the cluster does not show it yet")


def _suffices(record: ChainRecord) -> str:
    """A sentence when the links on the cluster complete the chain, else empty."""
    done, ran = record.chain.done, [link for link in record.links if link.started]
    if done.links and len(ran) >= done.links:
        return f"link {ran[-1].index} is the last of {done.links}"
    if done.total_time and _running_time(ran) >= done.total_time:
        return f"link {ran[-1].index} completes the {done.total_time} s asked for"
    return ""


def _running_time(links: list[Link]) -> Seconds:
    """Seconds the links ran, those still running taken to their limit."""
    return sum(link.end - link.start for link in links)


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
    return replace(record.with_link(link), refusals=0, refused_since=ABSENT, refused=ABSENT)


@_apply.register
def _(event: LinkQueued, record: ChainRecord, now: Seconds) -> ChainRecord:
    link = record.links[event.index - 1]
    return record.with_link(replace(link, state=LinkState.PENDING, start=ABSENT, end=ABSENT))


@_apply.register
def _(event: LinkStarted, record: ChainRecord, now: Seconds) -> ChainRecord:
    link = record.links[event.index - 1]
    running = replace(link, state=LinkState.RUNNING, start=event.start, end=event.end, job_state=JobState.RUNNING)
    return record.with_link(running)


@_apply.register
def _(event: LinkRetired, record: ChainRecord, now: Seconds) -> ChainRecord:
    return record.with_link(replace(record.links[event.index - 1], retired=now))


@_apply.register
def _(event: LinkEnded, record: ChainRecord, now: Seconds) -> ChainRecord:
    link = replace(
        record.links[event.index - 1],
        state=LinkState.ENDED,
        start=event.start,
        end=event.end,
        job_state=event.state,
        exit_code=event.exit_code,
    )
    record = record.with_link(link)
    if record.over:
        return record
    if link.is_retired:
        return _go_on(record) if link.started else record
    if _completes(record, link):
        text = f"link {link.index} ended with exit code {link.exit_code}"
        return replace(record, status=ChainStatus.DONE, reason=text, cancel_running=True)
    kind = _FAILURES.get(event.state)
    return _go_on(record) if kind is None else _failed(record, link, kind, now)


@_apply.register
def _(event: LinkLost, record: ChainRecord, now: Seconds) -> ChainRecord:
    link = record.links[event.index - 1]
    if link.running and link.end <= now:
        ended = LinkEnded(link.index, link.start, link.end, JobState.TIMEOUT, 0)
        return apply(record, ended, now)
    end = now if link.started else ABSENT
    record = record.with_link(replace(link, state=LinkState.LOST, end=end))
    return record if record.over or link.is_retired else _failed(record, link, FailureKind.NODE, now)


@_apply.register
def _(event: LinkRefused, record: ChainRecord, now: Seconds) -> ChainRecord:
    """A link that never existed leaves no trace but the count; its index and tag are free again."""
    assert record.links[-1].index == event.index
    assert record.links[-1].state is LinkState.PLANNED
    refusals = record.refusals + event.counts
    record = replace(record, links=record.links[:-1], refusals=refusals, not_before=now + event.pause)
    if not event.by_slurm:
        return record
    return replace(record, refused_since=now if record.refused == ABSENT else record.refused_since, refused=now)


@_apply.register
def _(event: DoneFileSeen, record: ChainRecord, now: Seconds) -> ChainRecord:
    return replace(record, status=ChainStatus.DONE, reason=f"{record.chain.done.file} exists")


@_apply.register
def _(event: PauseAsked, record: ChainRecord, now: Seconds) -> ChainRecord:
    if record.over:
        return record
    return replace(record, status=ChainStatus.PAUSED, reason=event.reason)


@_apply.register
def _(event: ResumeAsked, record: ChainRecord, now: Seconds) -> ChainRecord:
    if record.status is not ChainStatus.PAUSED:
        return record
    record = replace(record, status=ChainStatus.ACTIVE, reason="", failures=0, not_before=now)
    return _forgiven(record)


@_apply.register
def _(event: RefusalsForgiven, record: ChainRecord, now: Seconds) -> ChainRecord:
    return record if record.refused == ABSENT else replace(_forgiven(record), not_before=now)


@_apply.register
def _(event: CancelAsked, record: ChainRecord, now: Seconds) -> ChainRecord:
    return replace(record, status=ChainStatus.STOPPED, reason="cancelled by its owner", cancel_running=True)


def _forgiven(record: ChainRecord) -> ChainRecord:
    return replace(record, refusals=0, refused_since=ABSENT, refused=ABSENT)


def _completes(record: ChainRecord, link: Link) -> bool:
    """Whether the link's exit code is the one that ends the chain.

    A link that ends after Slurm has warned it of its limit has obeyed the warning; that is no word on whether
    the work is done.
    """
    exited = link.job_state in (JobState.COMPLETED, JobState.FAILED)
    return exited and link.exit_code == record.chain.done.exit_code and not _was_warned(record, link)


def _was_warned(record: ChainRecord, link: Link) -> bool:
    """Whether ``--signal`` had come; Slurm sends it up to a minute early (man sbatch)."""
    request = record.chain.request
    if request.warn is None or not link.started:
        return False
    return link.end >= link.start + request.limit - request.warn.lead - _WARNED_EARLY


def _go_on(record: ChainRecord) -> ChainRecord:
    """After a link that ended as links do."""
    return _done_if_enough(replace(record, failures=0))


def _done_if_enough(record: ChainRecord) -> ChainRecord:
    """Done when there were enough links, or enough running time; however the last one ended."""
    final = [link for link in record.links if link.started and link.final]
    done = record.chain.done
    if done.links and len(final) >= done.links:
        return replace(record, status=ChainStatus.DONE, reason=f"{done.links} links have run")
    if done.total_time and _running_time(final) >= done.total_time:
        return replace(record, status=ChainStatus.DONE, reason=f"ran for {_running_time(final)} s in all")
    return record


def _failed(record: ChainRecord, link: Link, kind: FailureKind, now: Seconds) -> ChainRecord:
    failures, policy = record.failures + 1, record.chain.failures.of(kind)
    if policy.gives_up(failures):
        text = f"link {link.index} failed ({kind}), failure {failures} in a row"
        return replace(record, status=ChainStatus.STOPPED, reason=text, failures=failures)
    record = _done_if_enough(replace(record, failures=failures, not_before=now + policy.pause(failures)))
    if record.over or policy.recovery is not Recovery.CONTINUE or not _fails_to_start(record):
        return record
    text = (
        f"{_FAILED_STARTS} links in a row failed within {_AT_ONCE} s of their start; resume it once that is mended"
    )
    return replace(record, status=ChainStatus.PAUSED, reason=text)


def _fails_to_start(record: ChainRecord) -> bool:
    """Whether going on at once would only burn one link after another."""
    last = [link for link in record.links if link.final][-_FAILED_STARTS:]
    return record.failures >= _FAILED_STARTS and all(_failed_at_once(link) for link in last)


def _failed_at_once(link: Link) -> bool:
    return link.started and link.job_state in _BROKEN and link.end - link.start <= _AT_ONCE

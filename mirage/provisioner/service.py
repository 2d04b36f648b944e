"""Whether a chain's service is there, as its owner asks first, and for how long Slurm suspended it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus
from mirage.domain.job import ABSENT, JobState
from mirage.provisioner.events import LinkEnded, LinkLost, LinkRequeued, LinkResumed, LinkStarted

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.link import Link
    from mirage.provisioner.events import Event


def standing_since(record: ChainRecord) -> Seconds:
    """Since when all links that run are suspended, and others are over; ``ABSENT``: one is not, or none runs."""
    standing = _standing(record)
    if not standing:
        return ABSENT
    over = (link.end for link in record.links if link.worked and link.final)
    return max(*(link.suspended for link in standing), *over, ABSENT)


def suspended_for(record: ChainRecord, now: Seconds) -> Seconds:
    """Time until ``now`` in which nothing of the chain has run because Slurm had suspended it."""
    since = standing_since(record)
    present = max(0, now - since) if since != ABSENT and not record.over else 0
    return sum(link.stood for link in record.links) + present


def standing_counted(record: ChainRecord, event: Event, now: Seconds) -> ChainRecord:
    """The record just before ``event``, which may let its service continue: the time until then is counted.

    It is kept with the link that ran first. What a chain that is over has lost is known already.
    """
    at, standing = _moment(record, event, now), _standing(record)
    if at == ABSENT or not standing or record.over:
        return record
    since = standing_since(record)
    for link in standing:
        record = record.with_link(replace(link, suspended=max(link.suspended, at)))
    first = record.links[standing[0].index - 1]
    return record.with_link(replace(first, stood=first.stood + max(0, at - since), resumed=at))


def _standing(record: ChainRecord) -> tuple[Link, ...]:
    """The links that run, where all are suspended; of one writer the first, for whose end the next one waits."""
    running = tuple(link for link in record.links if link.running)
    running = running[:1] if record.chain.one_writer else running
    return () if any(link.suspended == ABSENT for link in running) else running


def _moment(record: ChainRecord, event: Event, now: Seconds) -> Seconds:
    """When the event ends a suspension, or another link takes over; ``ABSENT``: it does neither."""
    if not isinstance(event, LinkResumed | LinkEnded | LinkRequeued | LinkLost | LinkStarted):
        return ABSENT
    link = record.links[event.index - 1] if event.index <= len(record.links) else None
    if isinstance(event, LinkStarted):
        takes_over = not record.chain.one_writer and (link is None or not link.started)
        return event.start if takes_over else ABSENT
    if link is None or link.suspended == ABSENT or not link.running:
        return ABSENT
    match event:
        case LinkResumed():
            return event.at
        case LinkLost():
            return now
        case _:
            return event.end


class ServiceState(StrEnum):
    """State of a chain's work: starting, running, interrupted, paused or over."""

    STARTING = "starting"
    """No link has run yet."""
    UP = "up"
    DOWN = "down"
    """Links ran, none runs now or Slurm has suspended those that do, and another one is to come."""
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Service:
    """The state, and how long it has lasted."""

    state: ServiceState
    since: Seconds = ABSENT
    """Up: start of the first link after the last interruption; paused or cancelled: when that was asked for; else
    the end of the link that ran last."""
    interruption: Seconds = 0
    """Seconds for which nothing has run since the last link, or had as the chain ended."""
    overlap: Seconds = 0
    """Seconds for which two links have run together that both run still."""


def service_of(record: ChainRecord, now: Seconds) -> Service:
    """State of a chain's work at ``now``."""
    state, up = state_of(record), record.head is not None
    if (stands := standing_since(record)) != ABSENT and not record.over:
        return Service(state, record.paused if state is ServiceState.PAUSED else stands, max(0, now - stands))
    overlap = _together(record, now)
    if up and state is ServiceState.UP:
        return Service(state, _up_since(record), overlap=overlap)
    ended = max((link.end for link in record.links if link.worked and link.final), default=ABSENT)
    told = {ServiceState.PAUSED: record.paused, ServiceState.CANCELLED: record.cancelled}.get(state, ABSENT)
    since = told if told != ABSENT or up else ended
    if up or ended == ABSENT:
        return Service(state, since, overlap=overlap)
    return Service(state, since, record.lost if record.over else max(0, now - ended))


def state_of(record: ChainRecord) -> ServiceState:
    """The state alone: it depends on no clock."""
    match record.status:
        case ChainStatus.PAUSED:
            return ServiceState.PAUSED
        case ChainStatus.DONE:
            return ServiceState.DONE
        case ChainStatus.STOPPED:
            return ServiceState.CANCELLED if _cancelled(record) else ServiceState.FAILED
    if record.head is not None:
        return ServiceState.UP if standing_since(record) == ABSENT else ServiceState.DOWN
    return ServiceState.DOWN if any(link.started for link in record.links) else ServiceState.STARTING


def interruption_of(record: ChainRecord, now: Seconds) -> Seconds:
    """Seconds for which nothing has run until ``now``, from the first start on."""
    between = sum(outcome.interruption for outcome in record.outcomes())
    return between + sum(link.stood for link in record.links) + service_of(record, now).interruption


def _cancelled(record: ChainRecord) -> bool:
    """Whether a person ended it: the chain, or the link after which no other was to follow.

    A link that Mirage cancelled because an earlier one had ended the chain says nothing of that.
    """
    last = next((link for link in reversed(record.links) if link.final), None)
    ended_by = record.links[record.ended_by - 1] if record.ended_by else last
    return record.cancel_running or (ended_by is not None and ended_by.job_state is JobState.CANCELLED)


def _together(record: ChainRecord, now: Seconds) -> Seconds:
    """Of a handover that continues: it counts among the complete ones once the first of both links has ended."""
    running = [link for link in record.links if link.running and link.suspended == ABSENT]
    return max(0, now - running[1].start) if len(running) > 1 and not running[1].looks else 0


def _up_since(record: ChainRecord) -> Seconds:
    since = next(link for link in record.links if link.started).start
    for _, outcome in record.handovers():
        if outcome.interruption:
            since = outcome.successor_start
    return max(since, *(link.resumed for link in record.links))

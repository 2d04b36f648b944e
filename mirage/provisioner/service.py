"""Whether a chain's service is there, as its owner asks first. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus
from mirage.domain.job import ABSENT, JobState
from mirage.provisioner.suspension import standing_since

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds


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

"""Links that Slurm has suspended: since when a service stands still, and for how long it did. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT
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

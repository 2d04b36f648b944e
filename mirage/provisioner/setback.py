"""Times that the daemon's clock wrote before it was set back: a record must not wait for them to come. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.failurepolicy import FailureKind
from mirage.domain.job import ABSENT
from mirage.provisioner.rejections import retry_pause

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.link import Link
    from mirage.provisioner.limits import Limits


def corrected(record: ChainRecord, now: Seconds, limits: Limits) -> ChainRecord:
    """The record in which nothing has happened after ``now``, and no pause lasts longer than pauses do.

    The record itself where nothing is later. Times that Slurm gave are left as they are.
    """
    # Of a chain that is over, the last link's time counts towards its owner's share.
    links = record.links[-1:] if record.over else record.links
    later = max(record.refused, record.paused, record.cancelled) > now or any(
        _is_later(link, now) for link in links
    )
    if record.not_before <= now and not later:
        return record
    latest = now + _longest_pause(record, limits)
    if record.not_before <= latest and not later:
        return record
    return replace(
        record,
        links=tuple(_corrected(link, now) if _is_later(link, now) else link for link in record.links),
        not_before=min(record.not_before, latest),
        refused=min(record.refused, now),
        paused=min(record.paused, now),
        cancelled=min(record.cancelled, now),
        refused_since=min(record.refused_since, now),
    )


def _longest_pause(record: ChainRecord, limits: Limits) -> Seconds:
    """By the failures and rejections in a row that the record counts."""
    failures = max(record.failures, 1)
    pauses = [record.chain.failures.of(kind).pause(failures) for kind in FailureKind]
    return max(*pauses, retry_pause(record.refusals + 1, limits))


def _is_later(link: Link, now: Seconds) -> bool:
    return max(link.planned, link.missed, link.telling, link.retired, link.suspended, link.resumed) > now


def _corrected(link: Link, now: Seconds) -> Link:
    """A job is sent before Slurm receives it."""
    sent = now if link.job_submit == ABSENT else min(link.job_submit, now)
    return replace(
        link,
        planned=min(link.planned, sent),
        submit=min(link.submit, sent),
        missed=min(link.missed, now),
        telling=min(link.telling, now),
        retired=min(link.retired, now),
        suspended=min(link.suspended, now),
        resumed=min(link.resumed, now),
        lost=tuple(min(time, now) for time in link.lost),
    )

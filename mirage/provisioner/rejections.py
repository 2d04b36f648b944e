"""Reaction of a chain to a rejected link: retry for as long as the chain lives, or pause. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus
from mirage.domain.instants import spell_instant
from mirage.domain.job import ABSENT
from mirage.domain.link import NO_JOB

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.link import Link
    from mirage.provisioner.limits import Limits

_MOST_LOST = 3  # submissions of a link that the backend did not survive
_LONGEST_DOUBLING = 4

LONGEST_PAUSE: Seconds = 900
"""Between two tries at most; most limits pass when another job ends."""


def retry_pause(rejections: int, limits: Limits) -> Seconds:
    """Return the seconds until the next try after this number of consecutive rejections (1 or more)."""
    longest = max(limits.refusal_backoff, LONGEST_PAUSE)
    return min(limits.refusal_backoff << min(rejections - 1, 16), longest)


def pauses(record: ChainRecord, limits: Limits) -> bool:
    """Whether one more rejection that no retry can fix pauses the chain.

    Immediately if Slurm has never accepted a link of it. Otherwise the change of the cluster may be temporary: a
    partition that is being reconfigured, an account that accounting has not sent to slurmctld yet.
    """
    if not limits.pause_after_refusals:
        return False
    accepted = any(link.job_id != NO_JOB for link in record.links)
    return not accepted or record.permanent + 1 >= limits.pause_after_refusals


def sent_again(link: Link, settle: Seconds, contact: Seconds = 0) -> Seconds:
    """When a planned link that no snapshot shows counts as never submitted.

    ``settle`` seconds, longer the more often the backend was lost, after the first snapshot that lacked it,
    whichever process looked, or after ``contact``, the end of the last break in the cluster's answers: a
    controller that was away may still have our request queued.
    """
    pause = settle << min(len(link.lost), _LONGEST_DOUBLING)
    return max(link.planned, link.missed, contact) + pause


def back_end_lost(record: ChainRecord, link: Link, error: str, accepted: Seconds, now: Seconds) -> ChainRecord:
    """The record after one more submission of a planned link that the backend did not survive.

    ``accepted``: when the last link that Slurm accepted was planned, of all chains. An outage concerns them
    all; if others were accepted since the first loss, this link ends the backend, and its chain pauses.
    """
    link = replace(link, lost=(*link.lost, now))
    record = record.with_link(link)
    if len(link.lost) < _MOST_LOST or accepted <= link.lost[0]:
        return record
    text = f"link {link.index}: slurmrestd crashed {len(link.lost)} times when this link was submitted: {error}"
    return paused(record, f"{text}; correct the cause, then `mirage chain resume`", now)


def paused(record: ChainRecord, why: str, now: Seconds) -> ChainRecord:
    """Paused; one that is paused already keeps its reason, which may be its owner's word."""
    if record.status is ChainStatus.PAUSED:
        return record
    return replace(record, status=ChainStatus.PAUSED, reason=why, paused=now)


def room_again(record: ChainRecord) -> ChainRecord:
    """The record once a link of it has ended: a submission that a limit rejected may succeed now; retry it."""
    return record if record.refused == ABSENT or record.permanent else replace(record, not_before=0)


def forgive_lost(record: ChainRecord) -> ChainRecord:
    """With as many submissions of the planned link as at first."""
    waiting = record.waiting
    return record.with_link(replace(waiting, lost=())) if waiting and waiting.lost else record


def rejection_text(record: ChainRecord) -> str:
    """Since when and how often Slurm rejects the next link, with Slurm's words; empty where it does not."""
    if record.refused == ABSENT or not record.rejection:
        return ""
    times = "once" if record.refusals <= 1 else f"{record.refusals} times"
    since = spell_instant(record.refused_since)
    return f"Slurm has rejected link {record.next_index} {times} since {since}: {record.rejection}"

"""Reactions to rejected links: of a chain, and of all where Slurm rejects one after another. Pure.

A chain tries again for as long as it lives, or pauses. In protected mode nothing is submitted but one try
periodically; nothing of it is stored next to the chains: a restart finds it as it was. A clock that was set
back must not leave a record waiting for times that it wrote before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.domain.bounds import format_instant
from mirage.domain.chain import ChainStatus
from mirage.domain.failurepolicy import FailureKind
from mirage.domain.job import ABSENT
from mirage.domain.link import NO_JOB
from mirage.slurm.error_messages import concerns_others

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.link import Link
    from mirage.provisioner.limits import Limits
    from mirage.provisioner.tally import Tally

FIRST_TRY = 300
"""Seconds from the rejection that begins it to the first try; after that they grow with the trouble's age."""
LONGEST_WAIT = 1_800
"""Seconds between two tries at most: a chain that could continue must not be kept waiting for long."""


@dataclass(frozen=True, slots=True)
class Protection:
    """State of the protected mode while it is on."""

    since: Seconds
    """Slurm has accepted nothing since the first of the counted rejections."""
    chains: int
    """Number of rejected chains."""
    next_try: Seconds
    """From this time on one of these chains may try; the next one waits for the result."""
    held: frozenset[ChainId] = frozenset()
    """The rejected chains. Others may submit: the first accepted link ends protected mode."""

    def next_try_of(self, record: ChainRecord) -> Seconds:
        """From when on this chain may try; 0: at any time."""
        return self.next_try if record.chain.chain_id in self.held else 0

    def __str__(self) -> str:
        """Return the text for the journal."""
        return f"Slurm has rejected {self.chains} chains in a row that it had accepted before"


def protection(tally: Tally, limits: Limits) -> Protection | None:
    """Protected mode, where these chains give cause for it; ``None``: all is well.

    A chain counts that Slurm had accepted before and rejects now: one that it never took is its owner's mistake.
    So is, most likely, what befalls one owner alone while others are served here too; and a limit, or what a
    partition does not give, concerns the chains alone that come up against it.
    """
    suspects = tally.suspects.values()
    if not limits.protect_after or len(suspects) < limits.protect_after:
        return None
    accepted = tally.last_accepted()
    refused = [record for record in suspects if record.refused > accepted and _may_lie_with_slurm(record)]
    if len(refused) < limits.protect_after or not _of_several(refused, tally):
        return None
    since = max(accepted, min(record.refused_since for record in refused))
    last = tally.last_attempt()
    next_try = last + min(max(last - since, FIRST_TRY), LONGEST_WAIT)
    return Protection(since, len(refused), next_try, frozenset(record.chain.chain_id for record in refused))


def _may_lie_with_slurm(record: ChainRecord) -> bool:
    return concerns_others(record.rejection.partition(":")[0])


def _of_several(refused: Iterable[ChainRecord], tally: Tally) -> bool:
    """Whether several owners are concerned, or there is but one."""
    served = sum(totals.not_over > 0 for totals in tally.owners.values())
    return len({record.chain.owner for record in refused}) >= min(2, served)


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
    since = format_instant(record.refused_since)
    return f"Slurm has rejected link {record.next_index} {times} since {since}: {record.rejection}"


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

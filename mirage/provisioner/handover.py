"""When a predecessor makes way for the successor that runs beside it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import HandoverPolicy
from mirage.domain.job import NEVER

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord, Link
    from mirage.domain.job import Seconds


def successor(record: ChainRecord) -> Link | None:
    """The running link that takes over, where an earlier one runs beside it or is about to be told."""
    running = [link for link in record.links if link.running]
    return running[-1] if len(running) > 1 else None


def to_retire(record: ChainRecord, ready: bool, now: Seconds) -> tuple[Link, ...]:
    """Running links that are to be told, now, to make way.

    ``ready``: whether the successor has said that it can take over.
    """
    heir = successor(record)
    if heir is None or not _due(record, heir, ready, now):
        return ()
    return tuple(link for link in record.links if link.running and link is not heir and not link.is_retired)


def to_end(record: ChainRecord, now: Seconds) -> tuple[Link, ...]:
    """Links told to make way that are still there when their grace is over, and those that wait to no end."""
    grace = record.chain.handover.signal.lead
    return tuple(
        link for link in record.live if link.is_retired and (not link.running or now >= link.retired + grace)
    )


def surplus(record: ChainRecord) -> tuple[Link, ...]:
    """Links that were requeued while a later one waits or runs already: the chain has moved on without them."""
    later = max((link.index for link in record.links if link.waiting or link.running), default=0)
    return tuple(link for link in record.links if link.waiting and link.index < later)


def next_instant(record: ChainRecord, now: Seconds) -> Seconds:
    """When something about the hand-over falls due at the latest; ``NEVER`` where nothing does."""
    handover, heir = record.chain.handover, successor(record)
    due = [link.retired + handover.signal.lead for link in record.live if link.is_retired]
    if heir is not None and handover.max_overlap:
        due.append(heir.start + handover.max_overlap)
    return min((instant for instant in due if instant > now), default=NEVER)


def _due(record: ChainRecord, heir: Link, ready: bool, now: Seconds) -> bool:
    handover = record.chain.handover
    if handover.policy is HandoverPolicy.ON_START:
        return True
    if handover.policy is HandoverPolicy.WHEN_READY and ready:
        return True
    return handover.max_overlap > 0 and now >= heir.start + handover.max_overlap

"""When something about a chain falls due. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import LinkState
from mirage.domain.job import NEVER
from mirage.provisioner import handover, rejections

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds


def next_due(record: ChainRecord, now: Seconds, settle: Seconds) -> Seconds:
    """The next time at which something is due: the head's end, a back-off, a search, a handover."""
    end = record.head.end if record.head else NEVER
    due = [record.not_before, end, end - record.chain.release_lead, handover.next_instant(record, now)]
    planned = [link for link in record.links if link.state is LinkState.PLANNED]
    due += [rejections.sent_again(link, settle) for link in planned]
    return min((time for time in due if time > now), default=NEVER)

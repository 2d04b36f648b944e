"""When something about a chain falls due. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.job import NEVER
from mirage.domain.link import LinkState
from mirage.provisioner import handover, rejections
from mirage.provisioner.limitwarnings import ends_early

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds


def next_due(record: ChainRecord, now: Seconds, settle: Seconds) -> Seconds:
    """The next time at which something is due: the head's end, a back-off, a search, a handover."""
    end = record.head.end if record.head else NEVER
    released = end - ends_early(record) - record.chain.release_lead
    due = [record.not_before, end, released, handover.next_instant(record, now)]
    planned = [link for link in record.links if link.state is LinkState.PLANNED]
    due += [rejections.sent_again(link, settle) for link in planned]
    return min((time for time in due if time > now), default=NEVER)

"""Whether a chain is far from any act, so that the cluster need not be polled each minute for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import Steering
from mirage.domain.link import LinkState
from mirage.provisioner.gates import watched_files

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds

BEFORE: Seconds = 600
"""A chain is not calm this long before something falls due, s: as long as the longest interval between polls."""
AFTER: Seconds = 300
"""Nor this long after its link has started, s: scripts fail mostly at their start."""


def is_calm(record: ChainRecord, now: Seconds, due: Seconds) -> bool:
    """Whether only the failure of a link, or a command, can call for an act until ``BEFORE`` ahead of ``due``.

    One link runs. A successor is bound to its nodes, and can start only after it; one that waits in the queue may
    start at any time, and then the handover begins. Files are looked for each minute.
    """
    head, waiting = record.head, record.waiting
    if head is None or due - now <= BEFORE or now - head.start < AFTER or watched_files(record):
        return False
    if waiting is None:
        return list(record.live) == [head] and not head.is_retired
    bound = record.chain.method is Steering.PIN and not waiting.unpinned and waiting.state is LinkState.PENDING
    return bound and list(record.live) == [head, waiting] and not head.is_retired

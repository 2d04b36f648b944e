"""How often the cluster is polled: whether a chain is far from any act, and when the whole queue is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus, Steering
from mirage.domain.job import ABSENT
from mirage.domain.link import LinkState
from mirage.provisioner.gates import watched_files

if TYPE_CHECKING:
    from mirage.control.status import Cycle
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.link import Link

BEFORE: Seconds = 600
"""A chain is not calm this long before something falls due, s."""
AFTER: Seconds = 300
"""Nor this long after its link has started, s: scripts fail mostly at their start."""


def is_calm(record: ChainRecord, now: Seconds, due: Seconds, *, bound: bool = False) -> bool:
    """Whether no act can be due until ``BEFORE`` ahead of ``due``, but for an unexpected end or a command.

    One link runs, and is not to end. ``bound``: its successor in the queue cannot start before it ends; one
    that can start may do so at any time, and then the handover begins. Without a successor in the queue the
    chain is not calm where the last link ended early: this one may, too. Or nothing runs, and the only link
    waits in the queue, or the chain is paused. Files are looked for in each cycle.
    """
    head, waiting = record.head, record.waiting
    if due - now <= BEFORE or watched_files(record) or (record.over and record.cancel_running):
        return False
    pending = waiting is not None and waiting.state is LinkState.PENDING
    if head is None:
        alone = pending and record.live == (waiting,)
        return not record.over and (alone or (record.status is ChainStatus.PAUSED and not record.live))
    if now - head.start < AFTER or head.is_retired or head.requeued:
        return False
    if (
        head.end != ABSENT and head.end - now <= BEFORE
    ):  # its successor starts then, and the next one may be queued
        return False
    if waiting is None:
        return record.live == (head,) and (record.over or not _ended_early(record))
    sure = bound or record.chain.one_writer  # one writer: nodes, a hold or a dependency keep it pending
    return sure and pending and not record.over and set(record.live) == {head, waiting}


def held_surely(record: ChainRecord, *, held: bool) -> bool:
    """Whether a successor that is ``held`` in the way of its chain cannot start before it is released."""
    return held and record.chain.method in (Steering.PIN, Steering.HOLD)


def _ended_early(record: ChainRecord) -> bool:
    ended = [link for link in record.links if link.started and link.final]
    return bool(ended) and _early(ended[-1])


def _early(link: Link) -> bool:
    at_limit = link.limit_end != ABSENT and link.end_known and link.end >= link.limit_end - BEFORE
    return not (at_limit or link.is_retired)


class QueueReads:
    """When a cycle reads the whole queue, and when our links alone. For the loop's thread."""

    def __init__(self) -> None:
        self._last: Seconds = ABSENT
        self._due = False

    def due(self, age: Seconds, cycle: Cycle, now: Seconds) -> bool:
        """Whether it is to be read now; ``cycle``: the one before.

        Its age is ``age`` at most. Where a forecast decides it is two thirds of that, two ninths where that may be
        soon, and a fifteenth where a submission has fallen due. So it is where a user has changed a chain.
        """
        if self._last == ABSENT or age <= 0:
            return True
        if self._due or (cycle.forecast and now >= cycle.wake):
            allowed = age // 15
        elif cycle.forecast:
            allowed = 2 * age // 3 if cycle.calm else 2 * age // 9
        else:
            allowed = age
        return not 0 <= now - self._last < allowed

    def hurry(self) -> None:
        """A user has changed a chain."""
        self._due = True

    def done(self, now: Seconds, *, whole: bool) -> None:
        """A poll was answered; ``whole``: with the queue."""
        if whole:
            self._last, self._due = now, False

    def failed(self) -> None:
        """A poll was not answered: the next one reads all."""
        self._last = ABSENT

"""The last day of every partition's queue, summed up at regular intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import Window
from mirage.features.summary import summarise

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot

SPACING: Seconds = 600
"""Between two rows; the paper's."""

LENGTH = 144
"""Rows kept: 24 hours; the paper's."""


class QueueWindows:
    """Fed with snapshots as they come; keeps one in ``SPACING`` seconds."""

    def __init__(self) -> None:
        self._of: dict[str, Window] = {}
        self._next: Seconds | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Take a snapshot into account; nothing happens if it is stale, shows no queue or comes too soon."""
        if snapshot.stale or not snapshot.partitions:
            return
        if self._next is not None and snapshot.time < self._next:
            return
        # On the grid where it can be kept: intervals with jitter must not add up to longer spacing.
        self._next = (snapshot.time // SPACING + 1) * SPACING
        for name in ("", *(partition.name for partition in snapshot.partitions)):
            self._of[name] = _longer(self._of.get(name), snapshot, name)

    def of(self, partition: str) -> Window | None:
        """Return the window of a partition (empty: of the whole cluster), or ``None``."""
        return self._of.get(partition)

    def copy(self) -> QueueWindows:
        """An independent copy."""
        twin = QueueWindows()
        twin._next = self._next
        twin._of = dict(self._of)
        return twin


def _longer(known: Window | None, snapshot: Snapshot, partition: str) -> Window:
    """A new window with a row more; windows given away never change."""
    time, row = np.array([snapshot.time]), summarise(snapshot, partition)[None]
    if known is None:
        return Window(time, row)
    kept = slice(1 - LENGTH, None)
    return Window(np.concatenate([known.times[kept], time]), np.concatenate([known.rows[kept], row]))

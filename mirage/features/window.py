"""The last day of every partition's queue, summed up at regular intervals."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import Window
from mirage.features.summary import summarise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot

SPACING: Seconds = 600
"""Between two rows; the paper's."""

LENGTH = 144
"""Rows kept: 24 hours; the paper's."""


@dataclass(slots=True)
class _Rows:
    times: deque[int] = field(default_factory=lambda: deque(maxlen=LENGTH))
    rows: deque[NDArray[np.float32]] = field(default_factory=lambda: deque(maxlen=LENGTH))


class QueueWindows:
    """Fed with snapshots as they come; keeps one in ``SPACING`` seconds."""

    def __init__(self) -> None:
        self._of: dict[str, _Rows] = {}
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
            kept = self._of.setdefault(name, _Rows())
            kept.times.append(snapshot.time)
            kept.rows.append(summarise(snapshot, name))

    def of(self, partition: str) -> Window | None:
        """What is known of a partition (empty: of the whole cluster); ``None`` where nothing is."""
        kept = self._of.get(partition)
        if kept is None:
            return None
        return Window(np.array(kept.times, dtype=np.int64), np.stack(kept.rows))

    def copy(self) -> QueueWindows:
        """An independent copy."""
        twin = QueueWindows()
        twin._next = self._next
        twin._of = {name: _Rows(kept.times.copy(), kept.rows.copy()) for name, kept in self._of.items()}
        return twin

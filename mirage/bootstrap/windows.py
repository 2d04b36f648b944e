"""The last day of the queue, as the stored snapshots show it: a restart does not forget it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError, StoreUnavailable
from mirage.features.window import LENGTH, SPACING

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.features.window import QueueWindows
    from mirage.store.snapshots import SnapshotArchive

_LOG = logging.getLogger(__name__)


def refill(windows: QueueWindows, archive: SnapshotArchive, now: Seconds) -> None:
    """Add the stored snapshots within a window's length; log and skip those that cannot be read."""
    try:
        for time in archive.times(now - LENGTH * SPACING, now + 1):
            _add(windows, archive, time)
    except StoreUnavailable as error:
        _LOG.warning("event=queue_history_unavailable error=%r", str(error))


def _add(windows: QueueWindows, archive: SnapshotArchive, time: Seconds) -> None:
    try:
        for snapshot in archive.read(time, time + 1):
            windows.add(snapshot)
    except MirageError as error:
        _LOG.warning("event=snapshot_unreadable error=%r", str(error))

"""What the daemon keeps of snapshots: the waits of jobs that started, and periodically all of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import ABSENT
from mirage.store.waits import StartedJobs, started

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot

_LOG = logging.getLogger(__name__)


class Waits(Protocol):
    """Where the waits of started jobs go."""

    def add(self, jobs: StartedJobs) -> None:
        """Keep these waits."""


class Archive(Protocol):
    """Where whole snapshots go."""

    def write(self, snapshot: Snapshot) -> None:
        """Store a snapshot."""


class SnapshotWatch:
    """Store waits and snapshots as they are read; an error is logged and does not stop decisions."""

    def __init__(self, waits: Waits, archive: Archive, every: Seconds) -> None:
        self._waits = waits
        self._archive = archive
        self._every = every
        self._archived = ABSENT
        self._failed = False

    def seen(self, previous: Snapshot | None, current: Snapshot) -> None:
        """Note the jobs that started between both; archive ``current`` if one is due."""
        try:
            self._note(previous, current)
        except StoreUnavailable as error:
            _LOG.warning("event=snapshot_not_stored error=%r", str(error))
        except Exception as error:
            # The traceback of a bug only once: it would be repeated in every cycle.
            _LOG.warning("event=snapshot_not_stored error=%r", error, exc_info=not self._failed)
            self._failed = True

    def _note(self, previous: Snapshot | None, current: Snapshot) -> None:
        if previous is not None and len(jobs := started(previous, current)):
            self._waits.add(jobs)
        due = self._archived == ABSENT or not 0 <= current.time - self._archived < self._every
        if self._every and due:
            self._archive.write(current)
            self._archived = current.time

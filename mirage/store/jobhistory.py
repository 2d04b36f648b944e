"""``JobHistory`` of a daemon: the stored jobs, kept in memory."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.jobtable import job_table

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Clock
    from mirage.store.jobs import JobArchive


class StoredJobs:
    """What the archive held when it was last read.

    It is read when a longer span is requested than before, and by ``refresh``. The importer of jobs calls
    ``refresh`` from a separate thread: the loop does not wait for it, and sees the old table until it is done.
    """

    def __init__(self, archive: JobArchive, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock
        self._span: Seconds = 0
        self._known = job_table(0)
        self._reading = Lock()

    def jobs(self, span: Seconds) -> JobTable:
        """The jobs submitted within the last ``span`` seconds. Raises ``StoreUnavailable``."""
        if span > self._span:
            with self._reading:
                self._read(span)
        known = self._known
        first = int(np.searchsorted(known.submit, self._clock.now() - span))
        return known.take(np.arange(first, len(known))) if first else known

    def refresh(self) -> None:
        """Take in what was added; nothing happens until jobs are asked for. Raises ``StoreUnavailable``."""
        if self._span:
            with self._reading:
                self._read(self._span)

    def _read(self, span: Seconds) -> None:
        self._known = self._archive.read(self._clock.now() - span)
        self._span = span

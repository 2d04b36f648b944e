"""The waits of jobs that nobody watched, asked of the accounting: far back at first, later now and then."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mirage.store.waits import StartedJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from threading import Event

    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Clock

_LOG = logging.getLogger(__name__)

_OVERLAP: Seconds = 3_600
"""What is asked again each time: accounting hears of some jobs late."""
_PAUSE = 2.0
"""Real seconds between two questions."""


class Waits(Protocol):
    """Where waits go; those known already are left as they are."""

    def add(self, jobs: StartedJobs) -> None:
        """Keep these waits."""


class AccountingImport:
    """Brings the wait history up to now, each time it is called; one that is cut short begins anew.

    ``ask(start, end, pause)`` gives the jobs that started then, in several tables with a pause between them.
    ``marker`` is a file that says how far all is imported; ``span``: seconds to look back at first.
    """

    def __init__(
        self,
        ask: Callable[[Seconds, Seconds, Callable[[], None]], Iterator[JobTable]],
        waits: Waits,
        clock: Clock,
        marker: Path,
        span: Seconds,
        stopped: Event,
    ) -> None:
        self._ask = ask
        self._waits = waits
        self._clock = clock
        self._marker = marker
        self._span = span
        self._stopped = stopped

    def run(self) -> str:
        """Import what is missing; says how much. Raises ``ClusterUnavailable`` and ``StoreUnavailable``."""
        now = self._clock.now()
        start, count = max(self._known(now) - _OVERLAP, now - self._span), 0
        for table in self._ask(start, now, self._pause):
            jobs = started_jobs(table)
            self._waits.add(jobs)
            count += len(jobs)
            if self._stopped.is_set():
                return f"{count} waits imported; the daemon ends before all are"
        self._note(now)
        return f"{count} waits imported of the last {(now - start) / 3_600:.0f} h"

    def _pause(self) -> None:
        self._stopped.wait(_PAUSE)

    def _known(self, now: Seconds) -> Seconds:
        """Until when all is imported; long ago where that is not known or lies in the future."""
        try:
            through = int(json.loads(self._marker.read_text(encoding="utf-8"))["through"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        return through if through <= now else 0

    def _note(self, now: Seconds) -> None:
        new = self._marker.with_suffix(".new")
        try:
            new.write_text(json.dumps({"through": now}), encoding="utf-8")
            new.replace(self._marker)
        except OSError as error:
            _LOG.warning("%s cannot be written, so the import begins anew each time: %s", self._marker, error)


def started_jobs(table: JobTable) -> StartedJobs:
    """The rows of a table whose job ids are plain numbers, as all are but components of heterogeneous jobs."""
    plain = np.char.isdigit(table.job_id) if len(table) else np.zeros(0, dtype=bool)
    rows = table.take(np.flatnonzero(plain))
    return StartedJobs(
        job_id=rows.job_id.astype(np.int64),
        submit=rows.submit,
        start=rows.start,
        nodes=rows.nodes.astype(np.int64),
        limit=rows.limit,
        partition=rows.partition.codes.astype(np.int64),
        partition_names=rows.partition.vocabulary,
    )

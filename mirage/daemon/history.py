"""The jobs of all users, asked of the accounting: far back at first, later periodically."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mirage.atomic_file import write_atomically
from mirage.documentreading import parse_json
from mirage.domain.job import ABSENT, gres_class
from mirage.domain.jobtable import JobTraits, gres_columns
from mirage.store.waits import StartedJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path
    from threading import Event

    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import GresColumns, JobTable
    from mirage.ports import Clock

_LOG = logging.getLogger(__name__)

_OVERLAP: Seconds = 3_600
"""Overlap of the queried intervals, s: accounting receives some jobs late."""
_WINDOW: Seconds = 86_400
"""Interval of one query, s."""
_EVERY: Seconds = 3_600
"""Maximum age of the imported jobs, s."""
_PAUSE = 2.0
"""Real seconds between two queries."""


class WaitSink(Protocol):
    """Sink of waits; rows of known waits are left unchanged."""

    def add(self, jobs: StartedJobs) -> None:
        """Store the waits of these jobs, which have started."""


class JobSink(Protocol):
    """Sink of jobs; rows of known jobs are replaced."""

    def add(self, table: JobTable) -> None:
        """Store these jobs, or replace them where they are known."""


@dataclass(frozen=True, slots=True)
class AccountingSinks:
    """Sinks of an answer of accounting."""

    waits: WaitSink
    jobs: JobSink
    changed: Callable[[], None]
    """Called when all of an import is kept."""
    kept_back: Callable[[], Collection[int]] = frozenset
    """Jobs whose waits say nothing of the queue."""

    def add(self, table: JobTable) -> int:
        """Keep the jobs, and the waits of those that started; how many jobs."""
        self.jobs.add(table)
        self.waits.add(started_jobs(table).without(self.kept_back()))
        return len(table)


@dataclass(frozen=True, slots=True)
class Imported:
    """All jobs that ran or ended in [first, until) are known, as they were at ``until``."""

    first: Seconds
    until: Seconds

    def missing(self, begin: Seconds, now: Seconds) -> Iterator[tuple[Seconds, Seconds]]:
        """The windows to ask for: what has happened since, then further and further back to ``begin``.

        In this order the known jobs have no gaps, and a caller that stops early has the latest ones.
        """
        if now - self.until >= _EVERY:
            since = max(self.until - _OVERLAP, begin)
            for start in range(since, now, _WINDOW):
                yield start, min(start + _WINDOW, now)
        for end in range(min(self.first, now), begin, -_WINDOW):
            yield max(end - _WINDOW, begin), end

    def with_window(self, start: Seconds, end: Seconds) -> Imported:
        """This and one window next to it."""
        return Imported(min(self.first, start), max(self.until, end))


class AccountingImport:
    """Brings the job history up to date at each call; one that is cut short continues where it was.

    ``ask(start, end)`` gives the jobs that ran or ended then. ``marker`` is a file that says what is imported;
    ``span``: seconds to look back.
    """

    def __init__(
        self,
        ask: Callable[[Seconds, Seconds], JobTable],
        kept: AccountingSinks,
        clock: Clock,
        marker: Path,
        span: Seconds,
        stopped: Event,
    ) -> None:
        self._ask = ask
        self._kept = kept
        self._clock = clock
        self._marker = marker
        self._span = span
        self._stopped = stopped

    def run(self) -> str:
        """Import what is missing; return a text with the number of jobs, empty if nothing is due.

        Raises ``ClusterUnavailable`` and ``StoreUnavailable``; earlier jobs stay imported.
        """
        now = self._clock.now()
        begin, done, counts = now - self._span, self._known(now), list[int]()
        try:
            for start, end in done.missing(begin, now):
                if counts and self._stopped.wait(_PAUSE):
                    return f"{sum(counts)} jobs imported; the rest follows after the next start"
                counts.append(self._kept.add(self._ask(start, end)))
                done = done.with_window(start, end)
                self._note(done)
        finally:
            if counts:
                self._kept.changed()
        return f"{sum(counts)} jobs imported; queries: {len(counts)}" if counts else ""

    def _known(self, now: Seconds) -> Imported:
        """The interval that is imported; nothing where that is not known or cannot be read."""
        try:
            document = parse_json(self._marker.read_text(encoding="utf-8"))
            known = Imported(int(document["from"]), int(document["until"]))
        except (OSError, ValueError, KeyError, TypeError):
            return Imported(now, now)
        return known if known.first <= known.until <= now else Imported(now, now)

    def _note(self, done: Imported) -> None:
        try:
            write_atomically(self._marker, json.dumps({"from": done.first, "until": done.until}).encode())
        except OSError as error:
            text = "the next start imports everything again"
            _LOG.warning("event=import_not_noted file=%s error=%r text=%r", self._marker, str(error), text)


def started_jobs(table: JobTable) -> StartedJobs:
    """The jobs of a table that have started and whose ids are plain numbers."""
    started = np.char.isdigit(table.job_id) if len(table) else np.zeros(0, dtype=bool)
    rows = table.take(np.flatnonzero(started & (table.start != ABSENT)))
    return StartedJobs(
        job_id=rows.job_id.astype(np.int64),
        submit=rows.submit,
        start=rows.start,
        nodes=rows.nodes.astype(np.int64),
        limit=rows.limit,
        partition=rows.partition.codes.astype(np.int64),
        partition_names=rows.partition.vocabulary,
        traits=JobTraits(rows.account, rows.qos, *_gres(rows)),
        eligible=rows.eligible,
    )


def _gres(table: JobTable) -> GresColumns:
    """Jobs with the same amounts are of one class."""
    amounts, of_job = np.unique(np.column_stack([table.nodes, table.gres]), axis=0, return_inverse=True)
    found = [gres_class(zip(table.gres_names, row[1:], strict=True), row[0]) for row in amounts.tolist()]
    return gres_columns([found[place] for place in of_job.ravel().tolist()])

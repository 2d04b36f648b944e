"""Asks accounting, once, what happened to the links of a restored database since its backup."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from mirage.domain.errors import ClusterUnavailable
from mirage.domain.link import NO_JOB
from mirage.domain.pastlinks import PastLinks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event

    from mirage.control.restored import RestoredDatabase
    from mirage.domain.job import JobId, Seconds
    from mirage.ports import ChainStore, Clock, LinkAccounting

_LOG = logging.getLogger(__name__)

EVERY = 30.0
"""Real seconds until accounting is asked again that did not answer."""
_DAY: Seconds = 86_400
"""Of how much one query is about."""
_BEFORE: Seconds = 3_600
"""Margin before the backup that is queried as well: clocks may have been set."""
_AFTER: Seconds = 86_400
"""Slurm's clock may be ahead."""
_FURTHEST: Seconds = 90 * _DAY
"""An older backup is not compared: its chains are paused."""
_PAUSE = 2.0
"""Real seconds between two queries."""


class RestoredLinkQuery:
    """Asks day by day, and continues where it was cut short."""

    def __init__(
        self,
        accounting: LinkAccounting | None,
        database: RestoredDatabase,
        store: ChainStore,
        clock: Clock,
        answered: Callable[[], None],
        stopped: Event,
    ) -> None:
        """``answered`` is called when the loop can continue; ``stopped`` ends a pause between two queries."""
        self._accounting = accounting
        self._database = database
        self._store = store
        self._clock = clock
        self._answered = answered
        self._stopped = stopped
        self._found = PastLinks()
        self._next: Seconds | None = None
        self._asked = 0.0

    def run(self) -> str:
        """Ask what is still to be asked; says what was found, empty where nothing is new.

        Raises ``StoreUnavailable`` and ``ConfigError``.
        """
        if not self._database.open or self._database.answer is not None:
            return ""
        accounting = self._accounting
        if accounting is None or self._clock.now() - self._database.since > _FURTHEST:
            return self._answer(None, None)
        try:
            keeps = accounting.keeps_comments()
            if keeps is False:
                return self._answer(None, keeps)
            for start, end in self._windows():
                if self._next is not None and self._stopped.wait(_PAUSE):
                    return ""
                self._asked = time.monotonic()
                found = accounting.past_links(start, end, self._known())
                if found is None:
                    return self._answer(None, keeps)
                self._found, self._next = self._found.joined(found), end
        except ClusterUnavailable as error:
            if self._database.not_answered(f"accounting does not answer: {error}"):
                _LOG.warning('event=restored_chains_wait reason="accounting does not answer: %s"', error)
            return ""
        return self._answer(self._found, keeps)

    def _answer(self, found: PastLinks | None, keeps: bool | None) -> str:
        self._database.answered(found, keeps, self._asked)
        self._answered()
        self._found, self._next = PastLinks(), None  # it may have to be asked again
        if found is None:
            return "accounting does not show which links were submitted since the backup"
        return f"accounting has {len(found.jobs)} jobs of links since the backup"

    def _windows(self) -> Iterator[tuple[Seconds, Seconds]]:
        """The interval that is still to be queried: from shortly before the backup until after now."""
        now = self._clock.now()
        first = min(self._database.since, now) - _BEFORE if self._next is None else self._next
        until = now + _AFTER
        for start in range(first, until, _DAY):
            yield start, min(start + _DAY, until)

    def _known(self) -> frozenset[JobId]:
        links = (link for record in self._store.load() for link in record.links)
        return frozenset(link.job_id for link in links if link.job_id != NO_JOB)

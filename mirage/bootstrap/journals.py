"""A journal whose lines are logged as well."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.chain import ChainId
    from mirage.domain.journal import Entry
    from mirage.ports import Journal

_LOG = logging.getLogger("mirage.journal")


class LoggedJournal:
    """Writes each entry to ``journal`` and one line of log: troubles as warnings, repetitions for debugging.

    ``written`` is called with each: predictors may take seconds for each of many chains, and a watchdog waits.
    """

    def __init__(self, journal: Journal, written: Callable[[], None]) -> None:
        self._journal = journal
        self._written = written
        self._decided: dict[ChainId | None, str] = {}

    def write(self, entry: Entry) -> None:
        """Append one entry."""
        fields: dict[str, object] = {"kind": str(entry.kind), "at": entry.time}
        if entry.chain is not None:
            fields["chain"] = entry.chain
        if entry.link:
            fields["link"] = entry.link
        if entry.predictor:
            fields["predictor"] = entry.predictor
        _LOG.log(self._level(entry), "%s", entry.text, extra={"fields": fields})
        self._journal.write(entry)
        self._written()

    def _level(self, entry: Entry) -> int:
        """A chain that waits says the same each minute."""
        if entry.kind is EntryKind.TROUBLE:
            return logging.WARNING
        if entry.kind is EntryKind.SHADOW:
            return logging.DEBUG
        if entry.kind is not EntryKind.DECISION:
            return logging.INFO
        said, self._decided[entry.chain] = self._decided.get(entry.chain), entry.text
        return logging.DEBUG if said == entry.text else logging.INFO

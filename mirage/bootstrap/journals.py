"""A journal whose lines are logged as well."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from mirage.domain.journal import Entry
    from mirage.ports import Journal

_LOG = logging.getLogger("mirage.journal")


class LoggedJournal:
    """Writes each entry to ``journal`` and one line of log: troubles as warnings."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def write(self, entry: Entry) -> None:
        """Append one entry."""
        fields: dict[str, object] = {"kind": str(entry.kind), "at": entry.time}
        if entry.chain is not None:
            fields["chain"] = entry.chain
        if entry.link:
            fields["link"] = entry.link
        if entry.predictor:
            fields["predictor"] = entry.predictor
        level = logging.WARNING if entry.kind is EntryKind.TROUBLE else logging.INFO
        _LOG.log(level, "%s", entry.text, extra={"fields": fields})
        self._journal.write(entry)

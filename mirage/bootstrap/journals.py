"""A journal whose entries are also logged and passed to listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import JobRequest
    from mirage.domain.journal import Entry
    from mirage.ports import ChainStore, Journal

_LOG = logging.getLogger("mirage.journal")

Listener = Callable[["Entry"], None]
"""Receives each entry in the loop's thread as it is written: must be quick and wait for nothing."""


class LoggedChains:
    """A ``ChainStore`` whose entries saved with a record are passed to listeners like those of the journal."""

    def __init__(self, chains: ChainStore, journal: LoggedJournal) -> None:
        self._chains = chains
        self._journal = journal

    def load(self) -> tuple[ChainRecord, ...]:
        """Return the chains as the underlying database has them."""
        return self._chains.load()

    def with_script(self, request: JobRequest) -> JobRequest:
        """Return the request with the script of the underlying database."""
        return self._chains.with_script(request)

    def save(self, record: ChainRecord, *entries: Entry) -> None:
        """Save to the underlying database; pass on the entries only if that succeeds."""
        self._chains.save(record, *entries)
        for entry in entries:
            self._journal.announce(entry)


class LoggedJournal:
    """Writes each entry to ``journal`` and one line of log: troubles as warnings, repetitions for debugging.

    ``written`` is called with each: predictors may take seconds for each of many chains, and a watchdog waits.
    """

    def __init__(self, journal: Journal, written: Callable[[], None], listeners: Iterable[Listener] = ()) -> None:
        self._journal = journal
        self._written = written
        self._listeners = tuple(listeners)
        self._deaf: set[Listener] = set()
        self._decided: dict[ChainId | None, str] = {}

    def listen(self, listener: Listener) -> None:
        """Pass every later entry to ``listener``. Any thread."""
        self._listeners = (*self._listeners, listener)

    def write(self, entry: Entry) -> None:
        """Write the entry to the database's buffer, log it and pass it to the listeners."""
        self._journal.write(entry)
        self.announce(entry)

    def announce(self, entry: Entry) -> None:
        """Log an entry that is written already, and pass it to the listeners."""
        fields: dict[str, object] = {"kind": str(entry.kind), "id": entry.key, "at": entry.time}
        if entry.chain is not None:
            fields["chain"] = entry.chain
        if entry.link:
            fields["link"] = entry.link
        for name in ("predictor", "model", "asked"):
            if said := getattr(entry, name):
                fields[name] = said
        _LOG.log(self._level(entry), "%s", entry.text, extra={"fields": fields})
        self._tell(entry)
        self._written()

    def _tell(self, entry: Entry) -> None:
        """Pass the entry to the listeners; an error of one does not reach the loop and is logged once."""
        for listener in self._listeners:
            try:
                listener(entry)
            except Exception:
                if listener not in self._deaf:
                    self._deaf.add(listener)
                    _LOG.exception("event=internal_error text=%r", "journal listener: bug in Mirage; report it")

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

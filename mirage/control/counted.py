"""The stored chains, with a tally that every change of one of them updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.provisioner.tally import Tally

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import JobRequest, Seconds
    from mirage.domain.journal import Entry
    from mirage.ports import ChainStore


class CountedChains:
    """A ``ChainStore`` whose chains are counted as they are saved: between two permits a link may have been sent.

    Other threads delete old chains and other processes may have written before this daemon led, so all chains are
    counted again in each cycle. Of the loop's thread alone.
    """

    def __init__(self, chains: ChainStore, now: Seconds) -> None:
        self._chains = chains
        self._now = now
        self._tally: Tally | None = None
        self._before: Tally | None = None

    def recount(self, now: Seconds) -> None:
        """A cycle begins."""
        self._now = now
        self._forget()

    @property
    def tally(self) -> Tally:
        """Of the chains as they are stored. Raises ``StoreUnavailable``."""
        if self._tally is None:
            self._tally = Tally.of(self._chains.load(), self._now, self._before)
        return self._tally

    def load(self) -> tuple[ChainRecord, ...]:
        """Return the chains as the underlying database has them."""
        return self._chains.load()

    def with_script(self, request: JobRequest) -> JobRequest:
        """Return the request with the script of the underlying database."""
        return self._chains.with_script(request)

    def save(self, record: ChainRecord, *entries: Entry) -> None:
        """Like the underlying database; after a failure it is unknown what is stored."""
        try:
            self._chains.save(record, *entries)
        except BaseException:
            self._forget()
            raise
        if self._tally is not None:
            self._tally.put(record)

    def _forget(self) -> None:
        self._before, self._tally = self._tally or self._before, None

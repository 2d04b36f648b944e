"""One daemon's part in the election: it asks the database when the rules say so, and tells how it stands."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.control.election import Candidate
    from mirage.ports import Leases

_LOG = logging.getLogger(__name__)


def _nothing(reason: str) -> None:
    del reason


class Campaign:
    """One thread calls ``step`` and ``resign``; any thread may ask how it stands."""

    def __init__(self, leases: Leases, candidate: Candidate, clock: Callable[[], float]) -> None:
        """``clock``: seconds of one that nobody sets and that continues while the machine sleeps."""
        self._leases = leases
        self._clock = clock
        self.candidate = candidate
        self._silent = ""
        self._only_reads = False
        """The database answers, but takes no lease: its disk is full, say."""
        self._unfit = ""

    def step(self) -> float:
        """One question to the database; seconds until the next is due."""
        if self._unfit:
            self._stand_aside()
            return self.candidate.terms.look
        before, sent = self.candidate, self._clock()
        proposed = before.proposal(sent)
        try:
            if proposed is None:
                self.candidate = before.looked(self._leases.read(), self._clock())
            elif self._leases.swap(before.lease, proposed):
                self.candidate = before.swapped(proposed, sent)
            else:
                self.candidate = before.refused(self._clock())
        except StoreUnavailable as error:
            self.candidate = before.unanswered(self._clock())
            self._only_reads = proposed is not None
            self._say(str(error))
        else:
            followed = self.leader not in ("", self.candidate.name)
            if proposed is not None or followed or not self._only_reads:
                self._say("")
        return max(0.0, self.candidate.due - self._clock())

    def disqualify(self, reason: str) -> None:
        """Lead no more while this process lives, and hand the lease back at the next step. Any thread."""
        if not self._unfit:
            _LOG.error('event=daemon_disqualified reason="%s"', reason)
        self._unfit = reason

    def resign(self) -> None:
        """Hand the lease back; to be called once nothing is done any more that only a leader may do.

        Where the database does not answer, the others wait for the lease's length.
        """
        last = self.candidate
        if not last.holds:
            return
        try:
            self._leases.swap(last.lease, last.resigned())
        except StoreUnavailable as error:
            _LOG.warning("the lease could not be handed back, another daemon waits until it is over: %s", error)

    @property
    def term(self) -> int:
        """In which this daemon leads, whether or not it may act now; 0: it does not."""
        return self.candidate.term if self.candidate.holds and not self._unfit else 0

    @property
    def leader(self) -> str:
        """Whom the lease names, as far as is known; empty: nobody."""
        return self.candidate.lease.name

    def impediment(self, term: int) -> str:
        """Why nothing may be done in ``term`` now; empty: all may be done."""
        if self._unfit:
            return self._unfit
        known, now = self.candidate, self._clock()
        if term and self.term == term:
            return "" if known.leads(now) else f"the lease could not be renewed in time: {self._silent or 'late'}"
        if self.term:
            return "it has just begun to lead"
        if self._silent:
            return f"the lease cannot be {'written' if self._only_reads else 'read'}: {self._silent}"
        return f"{self.leader} leads" if self.leader else "nobody leads yet"

    def _stand_aside(self) -> None:
        before = self.candidate
        try:
            if before.holds:
                self._leases.swap(before.lease, before.resigned())
            self.candidate = before.looked(self._leases.read(), self._clock())
        except StoreUnavailable as error:
            self._say(str(error))
        else:
            self._say("")

    def _say(self, silent: str) -> None:
        if silent and not self._silent:
            _LOG.warning("the lease cannot be asked for: %s", silent)
        elif self._silent and not silent:
            _LOG.info("the lease can be asked for again")
        self._silent = silent


@dataclass(frozen=True, slots=True)
class Tenure:
    """The time for which a service is built: a term of leadership, or standing by until there is one."""

    holder: str
    term: int
    """0: it stands by."""
    impediment: Callable[[], str]
    """Why nothing may be done now; empty: all may be done. Any thread, at any time; waits for nothing."""
    leader: Callable[[], str]
    """The name of who leads, as far as is known; empty: nobody."""
    disqualify: Callable[[str], None] = _nothing
    """Lead no more, for the reason given."""

    @classmethod
    def of(cls, campaign: Campaign) -> Tenure:
        """That which begins now."""
        holder, term = campaign.candidate.holder, campaign.term
        return cls(holder, term, lambda: campaign.impediment(term), lambda: campaign.leader, campaign.disqualify)


SOLE = Tenure("", 0, str, str)
"""Of a service that shares its store with nobody, by construction: replays, measurements."""

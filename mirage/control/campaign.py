"""Leader election of one daemon: it reads and writes the lease in the database, and reports its state."""

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
    """One thread calls ``step`` and ``resign``; any thread may read the state."""

    def __init__(self, leases: Leases, candidate: Candidate, clock: Callable[[], float]) -> None:
        """``clock``: seconds of a clock that cannot be set and that continues while the machine sleeps."""
        self._leases = leases
        self._clock = clock
        self.candidate = candidate
        self._silent = ""
        self._only_reads = False
        """The database answers, but cannot store a lease, for example as its disk is full."""
        self._unfit = ""

    def step(self) -> float:
        """Query the database once; return the seconds until the next query is due."""
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
        """Stop leading for the rest of this process, and release the lease at the next step. Any thread."""
        if not self._unfit:
            _LOG.error('event=daemon_disqualified reason="%s"', reason)
        self._unfit = reason

    def resign(self) -> None:
        """Release the lease; to be called once all work of a leader has stopped.

        If the database does not answer, the other daemons wait until the lease expires.
        """
        last = self.candidate
        if not last.holds:
            return
        try:
            self._leases.swap(last.lease, last.resigned())
        except StoreUnavailable as error:
            text = "another daemon leads only after the lease expires"
            _LOG.warning("event=lease_release_failed error=%r text=%r", str(error), text)

    @property
    def term(self) -> int:
        """The term in which this daemon leads, whether or not it may act now; 0: it does not lead."""
        return self.candidate.term if self.candidate.holds and not self._unfit else 0

    @property
    def leader(self) -> str:
        """Name of the last known holder of the lease; empty: none."""
        return self.candidate.lease.name

    def impediment(self, term: int) -> str:
        """Why this daemon may not act in ``term`` now; empty: it may."""
        if self._unfit:
            return self._unfit
        known, now = self.candidate, self._clock()
        if term and self.term == term:
            return "" if known.leads(now) else f"the lease could not be renewed in time: {self._silent or 'late'}"
        if self.term:
            return "this daemon has just become the leader"
        if self._silent:
            return f"the lease cannot be {'written' if self._only_reads else 'read'}: {self._silent}"
        return f"{self.leader} leads" if self.leader else "no daemon leads yet"

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
            _LOG.warning("event=lease_unavailable error=%r", silent)
        elif self._silent and not silent:
            _LOG.info("event=lease_available")
        self._silent = silent


@dataclass(frozen=True, slots=True)
class Tenure:
    """The period for which a service is built: a term as the leader, or as a standby until one begins."""

    holder: str
    term: int
    """0: standby."""
    impediment: Callable[[], str]
    """Why this daemon may not act now; empty: it may. Any thread; never waits."""
    leader: Callable[[], str]
    """Name of the leader, as far as is known; empty: none."""
    disqualify: Callable[[str], None] = _nothing
    """Stop leading, for the given reason."""

    @classmethod
    def of(cls, campaign: Campaign) -> Tenure:
        """Return the period that begins now."""
        holder, term = campaign.candidate.holder, campaign.term
        return cls(holder, term, lambda: campaign.impediment(term), lambda: campaign.leader, campaign.disqualify)


SOLE = Tenure("", 0, str, str)
"""For a service whose database no other daemon uses: replays, measurements."""

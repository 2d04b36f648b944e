"""Leader election: the rules by which several daemons on one database agree on at most one leader; its lease.

The rules (``LeaseTerms``, ``LeaderCandidate``) are pure. ``LeaderElection`` reads and writes the lease in the
database, and reports its state.

A lease as in Gray & Cheriton 1989, without a common clock: the database only compares and swaps, and each
candidate measures by its own clock, which may show anything as long as all run about equally fast.

- A leader renews. Its lease counts from the time at which it *sent* the last successful renewal, for the lease's
  length less a margin, and no longer, whatever the database answers or does not answer.
- A standby takes the lease if it was unchanged for the lease's whole length. That time counts from the first
  *read* of the lease, which is later than the holder's sending.

So two leaders never overlap while clocks differ in speed by less than the margin's share. What a leader does
that has stopped between its look at the clock and the act itself, this cannot know: see
``mirage.store.leases.fence``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.domain.errors import StoreUnavailable
from mirage.domain.lease import VACANT, Lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.ports import Leases

_PART = 3
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Real seconds, all derived from the lease's length."""

    length: float

    @property
    def margin(self) -> float:
        """How much earlier the holder stops acting than others may take the lease, s."""
        return self.length / _PART

    @property
    def renewal(self) -> float:
        """Between two renewals: an estimate outlives one that fails."""
        return self.length / _PART

    @property
    def look(self) -> float:
        """Time between two reads of a standby, and between two attempts if the database does not answer, s."""
        return self.length / _PART**2


@dataclass(frozen=True, slots=True)
class LeaderCandidate:
    """What one daemon knows; each method returns the new knowledge. Times are of this daemon's clock, in seconds.

    Call in turn: ``due`` says when, ``proposal`` what to write as the new lease; pass the result to
    ``looked``, ``swapped`` or ``unanswered``.
    """

    holder: str
    name: str
    terms: LeaseTerms
    lease: Lease = VACANT
    """As it was seen last."""
    since: float = _NEVER
    """When it was first seen so."""
    certain: bool = False
    """Whether it was so at that time: not before the first read, nor after a swap without an answer."""
    term: int = 0
    """In which this daemon has led; 0: it never has."""
    until: float = _NEVER
    """To which time it may believe that it leads."""
    due: float = field(default=_NEVER)
    """When it is to act again."""

    @property
    def holds(self) -> bool:
        """Whether no other daemon was seen to take the lease after this one did."""
        return self.term != 0 and (self.lease.holder, self.lease.term) == (self.holder, self.term)

    def leads(self, now: float) -> bool:
        """Whether it may act."""
        return self.holds and now < self.until

    def proposal(self, now: float) -> Lease | None:
        """The lease to put in place of the one seen; ``None``: only look."""
        if not self.certain:
            return None
        if self.holds:
            return replace(self.lease, beat=self.lease.beat + 1)
        # A lease of an earlier process of this daemon is free: the state directory's lock says that it ended.
        free = self.lease.vacant or self.lease.holder == self.holder
        if free or now - self.since >= self.terms.length:
            return Lease(self.holder, self.name, self.lease.term + 1)
        return None

    def looked(self, lease: Lease, now: float) -> LeaderCandidate:
        """The lease was so at some time before ``now``."""
        since = self.since if lease == self.lease else now
        seen = replace(self, lease=lease, since=since, certain=True)
        if seen.holds or seen.proposal(now):
            return replace(seen, due=now)
        return replace(seen, due=min(now + self.terms.look, since + self.terms.length))

    def swapped(self, proposed: Lease, sent: float) -> LeaderCandidate:
        """The proposal sent at ``sent`` is in place."""
        until = sent + self.terms.length - self.terms.margin
        due = sent + self.terms.renewal
        return replace(self, lease=proposed, since=sent, certain=True, term=proposed.term, until=until, due=due)

    def refused(self, now: float) -> LeaderCandidate:
        """The lease was another one than the one read before: read it again immediately."""
        return replace(self, certain=False, due=now)

    def unanswered(self, now: float) -> LeaderCandidate:
        """The database did not answer; a proposal may be in place or not."""
        return replace(self, certain=False, due=now + self.terms.look)

    def resigned(self) -> Lease:
        """What a leader that ends leaves behind."""
        return replace(VACANT, term=self.lease.term)


_LOG = logging.getLogger(__name__)


def _nothing(reason: str) -> None:
    del reason


class LeaderElection:
    """One thread calls ``step`` and ``resign``; any thread may read the state."""

    def __init__(self, leases: Leases, candidate: LeaderCandidate, clock: Callable[[], float]) -> None:
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
    def answers(self) -> bool:
        """Whether the last query of the database was answered."""
        return not self._silent

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
    def of(cls, campaign: LeaderElection) -> Tenure:
        """Return the period that begins now."""
        holder, term = campaign.candidate.holder, campaign.term
        return cls(holder, term, lambda: campaign.impediment(term), lambda: campaign.leader, campaign.disqualify)


SOLE = Tenure("", 0, str, str)
"""For a service whose database no other daemon uses: replays, measurements."""

"""Who leads: the rules by which several daemons on one database agree that it is one of them at most. Pure.

A lease as in Gray & Cheriton 1989, without a common clock: the database only compares and swaps, and each
candidate measures by its own clock, which may show anything as long as all run about equally fast.

- A leader renews. Its lease counts from the time at which it *sent* the last successful renewal, for the lease's
  length less a margin, and no longer, whatever the database answers or does not answer.
- A standby takes the lease if it was unchanged for the lease's whole length. That time counts from the first
  *read* of the lease, which is later than the holder's sending.

So two leaders never overlap while clocks differ in speed by less than the margin's share. What a leader does
that
has stopped between its look at the clock and the act itself, this cannot know: see ``mirage.store.leases.fence``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mirage.domain.lease import VACANT, Lease

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
class Candidate:
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

    def looked(self, lease: Lease, now: float) -> Candidate:
        """The lease was so at some time before ``now``."""
        since = self.since if lease == self.lease else now
        seen = replace(self, lease=lease, since=since, certain=True)
        if seen.holds or seen.proposal(now):
            return replace(seen, due=now)
        return replace(seen, due=min(now + self.terms.look, since + self.terms.length))

    def swapped(self, proposed: Lease, sent: float) -> Candidate:
        """The proposal sent at ``sent`` is in place."""
        until = sent + self.terms.length - self.terms.margin
        due = sent + self.terms.renewal
        return replace(self, lease=proposed, since=sent, certain=True, term=proposed.term, until=until, due=due)

    def refused(self, now: float) -> Candidate:
        """The lease was another one than the one read before: read it again immediately."""
        return replace(self, certain=False, due=now)

    def unanswered(self, now: float) -> Candidate:
        """The database did not answer; a proposal may be in place or not."""
        return replace(self, certain=False, due=now + self.terms.look)

    def resigned(self) -> Lease:
        """What a leader that ends leaves behind."""
        return replace(VACANT, term=self.lease.term)

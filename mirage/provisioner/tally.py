"""Use of all chains and Slurm's reactions to them, counted per owner as records change.

A cycle asks for a permit once per chain. If each permit walked all chains, the hundred chains of one user would
delay the decision of every other user's chain. Here a change of one record costs what that record costs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus
from mirage.domain.job import ABSENT
from mirage.domain.link import NO_JOB, LinkState
from mirage.domain.script import script_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.chain import Chain, ChainId, ChainRecord
    from mirage.domain.job import Seconds

HOUR = 3_600
_MOST_RETRIES = 5
"""Of one chain in its first hour of back-off."""


@dataclass(frozen=True, slots=True)
class ChainUse:
    """Contribution of one chain to the totals."""

    record: ChainRecord
    stored: int
    """Bytes of its script, options and environment."""
    live: int
    submissions: int
    """Within the last hour."""
    retries: int
    """Within the last hour."""
    accepted: Seconds
    """When its last link was planned that Slurm accepted; ``ABSENT``: none was."""
    attempted: Seconds
    """When something was last rejected, or sent and not answered."""

    @property
    def suspect(self) -> bool:
        """Whether Slurm accepted this chain before and rejects it now."""
        return not self.record.over and ABSENT not in (self.record.refused, self.accepted)


@dataclass(slots=True)
class Totals:
    """Counts of the chains of one owner, or of all."""

    chains: int = 0
    not_over: int = 0
    active: int = 0
    """Neither over nor paused."""
    live_links: int = 0
    submissions: int = 0
    """Within the last hour."""
    retries: int = 0
    """Submissions after a rejection, within the last hour."""
    stored: int = 0
    """Bytes of scripts, options and environments."""

    def add(self, share: ChainUse, sign: int) -> None:
        """Count one chain, or with ``sign`` -1 count it no longer."""
        record = share.record
        self.chains += sign
        self.not_over += sign * (not record.over)
        self.active += sign * (record.status is ChainStatus.ACTIVE)
        self.live_links += sign * share.live
        self.submissions += sign * share.submissions
        self.retries += sign * share.retries
        self.stored += sign * share.stored


@dataclass(slots=True, eq=False)
class Tally:
    """The totals of all chains at one time; of one thread alone."""

    now: Seconds
    shares: dict[ChainId, ChainUse] = field(default_factory=dict)
    owners: dict[str, Totals] = field(default_factory=dict)
    """Of those with chains, in whatever state."""
    all: Totals = field(default_factory=Totals)
    suspects: dict[ChainId, ChainRecord] = field(default_factory=dict)
    """See ``protection``."""
    active: Counter[str] = field(default_factory=Counter)
    """Active chains by owner, for owners with some."""
    version: int = 0
    """Counts the changes."""

    @classmethod
    def of(cls, records: Iterable[ChainRecord], now: Seconds, before: Tally | None = None) -> Tally:
        """All chains again; ``before``: an older tally, whose sizes of unchanged chains are still right."""
        tally = cls(now)
        known = before.shares if before is not None else {}
        for record in records:
            tally._add(record, known.get(record.chain.chain_id))
        return tally

    def put(self, record: ChainRecord) -> None:
        """Count this record where the one of the same chain was counted."""
        old = self.shares.pop(record.chain.chain_id, None)
        if old is not None:
            self._change(old, -1)
        self._add(record, old)

    def of_owner(self, owner: str) -> Totals:
        """Totals of one owner, zeros for one without chains. Not to be changed."""
        return self.owners.get(owner) or Totals()

    def last_accepted(self) -> Seconds:
        """When the last link was planned that Slurm accepted, of all chains; walks them."""
        return max((share.accepted for share in self.shares.values()), default=ABSENT)

    def last_attempt(self) -> Seconds:
        """When something was last rejected, or sent and not answered; walks all chains."""
        return max((share.attempted for share in self.shares.values()), default=ABSENT)

    def _add(self, record: ChainRecord, known: ChainUse | None) -> None:
        share = _share(record, known, self.now)
        self.shares[record.chain.chain_id] = share
        self._change(share, 1)

    def _change(self, share: ChainUse, sign: int) -> None:
        self.version += 1
        record = share.record
        owner, chain_id = record.chain.owner, record.chain.chain_id
        self.owners.setdefault(owner, Totals()).add(share, sign)
        self.all.add(share, sign)
        if record.status is ChainStatus.ACTIVE:
            self.active[owner] += sign
            if not self.active[owner]:
                del self.active[owner]
        if share.suspect and sign > 0:
            self.suspects[chain_id] = record
        else:
            self.suspects.pop(chain_id, None)
        if not self.owners[owner].chains:
            del self.owners[owner]


def stored_bytes(chain: Chain) -> int:
    """Bytes of the script, the options, the environment and the arguments."""
    batch = chain.request.batch
    return 0 if batch is None else script_size(batch) + sum(map(len, batch.options))


def submitted_since(record: ChainRecord, instant: Seconds) -> int:
    """Number of links sent after ``instant``; only real submissions count, a rejected one leaves no link."""
    count = 0
    for link in reversed(record.links):
        if link.planned <= instant:
            break
        count += 1
    return count


def _share(record: ChainRecord, known: ChainUse | None, now: Seconds) -> ChainUse:
    """``known``: an older one of the same chain."""
    submissions = submitted_since(record, now - HOUR)
    retries = min(record.refusals, _MOST_RETRIES) if record.refused > now - HOUR else 0
    if known is not None and known.record is record:
        return replace(known, submissions=submissions, retries=retries)
    same = known is not None and known.record.chain is record.chain
    unanswered = [link.planned for link in record.links[-1:] if link.state is LinkState.PLANNED]
    return ChainUse(
        record,
        known.stored if known is not None and same else stored_bytes(record.chain),
        live=sum(not link.final for link in record.links),
        submissions=submissions,
        retries=retries,
        accepted=max((link.planned for link in record.links if link.job_id != NO_JOB), default=ABSENT),
        attempted=max(record.refused, *unanswered, ABSENT),
    )

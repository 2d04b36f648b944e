"""Shares of the owners in what all of them use: submissions per hour, links on the cluster. Pure.

Each owner has a separate limit. If all together reach the total, an owner within its share still submits.
Half of the total is divided equally among the owners with active chains. So one owner's many or short
links never stop another's handovers. First links of new chains leave a quarter of every limit to handovers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirage.domain.chain import ChainRecord
    from mirage.provisioner.limits import Limits
    from mirage.provisioner.tally import Tally

_UNKNOWN: Mapping[str, float] = {}
_LINKS_OF_A_CHAIN = 2
"""Jobs of a chain on the cluster at the same time: a link and its successor."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Use of one owner, and the number of owners that share the totals."""

    owners: int = 1
    """With active chains."""
    live_links: int = 0
    """Of the owner."""
    reserved_links: int = 0
    """Places on the cluster to which other owners have a claim."""
    submissions: int = 0
    """Of the owner within an hour."""
    retries: int = 0
    """Of the owner within an hour: submissions after a rejection."""
    first: bool = False
    """Whether this would be the first link of its chain."""
    retry: bool = False
    """Whether Slurm rejected this chain's last submission."""


def shares(tally: Tally, record: ChainRecord, limits: Limits) -> Shares:
    """Shares of the owner of ``record``, one of the tally's records."""
    owner = record.chain.owner
    own = tally.of_owner(owner)
    owners = len(tally.active) + (owner not in tally.active)
    return Shares(
        owners=owners,
        live_links=own.live_links,
        reserved_links=_reserved(tally, owner, limits.live_links // owners) if limits.live_links else 0,
        submissions=own.submissions,
        retries=own.retries,
        first=not record.links,
        retry=record.refusals > 0,
    )


def _reserved(tally: Tally, owner: str, place: int) -> int:
    """Places on the cluster to which owners other than this one have a claim, each to ``place`` at most."""
    claims = (
        min(place, _LINKS_OF_A_CHAIN * active) - tally.of_owner(other).live_links
        for other, active in tally.active.items()
        if other != owner
    )
    return sum(max(0, claim) for claim in claims)


def deferral(shares: Shares, live_links: int, submissions: int, limits: Limits) -> str:
    """Why a submission has to wait for its owner's share; empty: it need not.

    ``live_links`` and ``submissions`` (within an hour) are those of all owners.
    """
    if limits.live_links and live_links + _claims(shares, limits) >= limits.live_links:
        return f"{live_links} links are in the queue (limit {limits.live_links} for all users)"
    own, total = limits.submissions_per_hour_per_user, limits.submissions_per_hour
    if own and shares.submissions >= _ceiling(own, shares):
        return f"{shares.submissions} submissions of this user within an hour reach {_named(own, shares)} per user"
    if own and shares.retry and shares.retries >= own:
        return f"{shares.retries} retries of this user within an hour reach the limit of {own} per user"
    if total and submissions >= _ceiling(total, shares) and shares.submissions >= fair_share(total, shares.owners):
        return f"{submissions} submissions of all users within an hour reach {_named(total, shares)}"
    return ""


def fair_share(total: int, owners: int) -> int:
    """Part of a total that each owner has whatever the others do: half of it is divided among them."""
    return max(1, total // (2 * owners))


def in_turn(records: Iterable[ChainRecord], spent: Mapping[str, float] = _UNKNOWN) -> tuple[ChainRecord, ...]:
    """The records in the order in which they are attended to: handovers before first links.

    Among these, owners who took the least time come first (``spent``: seconds in the cycle before), then those
    with the fewest chains, so that one owner's many chains delay no other's few. Owners who are alike take turns.
    Chains that Slurm has rejected come after all others, those rejected last at the end: in protected mode one of
    them may try.
    """
    chosen = list(records)
    count = Counter(record.chain.owner for record in chosen if not record.over)
    seen: Counter[tuple[bool, str]] = Counter()
    turns: list[tuple[bool, float, int, int]] = []
    for record in chosen:
        owner, new = record.chain.owner, not record.links
        turns.append((new, spent.get(owner, 0.0), count[owner], seen[new, owner]))
        seen[new, owner] += 1
    return tuple(chosen[at] for at in sorted(range(len(chosen)), key=lambda at: (chosen[at].refused, turns[at])))


def _claims(shares: Shares, limits: Limits) -> int:
    """Places that an owner beyond its part must leave to the others."""
    return shares.reserved_links if shares.live_links >= limits.live_links // shares.owners else 0


def _named(limit: int, shares: Shares) -> str:
    """The limit that holds for this link, in words."""
    kept = f"{_ceiling(limit, shares)} of {limit} for first links (the rest is kept for handovers), the limit"
    return kept if shares.first else f"the limit of {limit}"


def _ceiling(limit: int, shares: Shares) -> int:
    return max(1, limit * 3 // 4) if shares.first else limit

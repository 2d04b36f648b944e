"""Limits of Mirage on itself, the owners' shares in them, and their quotas. Pure.

One function grants or rejects every submission.

Shares are in submissions per hour and in links on the cluster. Each owner has a separate limit. If all together
reach the total, an owner within its share still submits. Half of the total is divided equally among the owners
with active chains. So one owner's many or short links never stop another's handovers. First links of new chains
leave a quarter of every limit to handovers.

Quotas bound chains, and bytes of scripts and environments. As with submissions, half of each total is divided
among the owners, so that no owner's chains keep another's out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.domain.bounds import format_instant
from mirage.domain.errors import QuotaExceeded
from mirage.domain.script import without_text
from mirage.provisioner.tally import stored_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.job import Seconds
    from mirage.provisioner.tally import Tally

_UNKNOWN: Mapping[str, float] = {}
_LINKS_OF_A_CHAIN = 2
"""Jobs of a chain on the cluster at the same time: a link and its successor."""


@dataclass(frozen=True, slots=True)
class OwnerShares:
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


def shares(tally: Tally, record: ChainRecord, limits: Limits) -> OwnerShares:
    """Shares of the owner of ``record``, one of the tally's records."""
    owner = record.chain.owner
    own = tally.of_owner(owner)
    owners = len(tally.active) + (owner not in tally.active)
    return OwnerShares(
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


def deferral(shares: OwnerShares, live_links: int, submissions: int, limits: Limits) -> str:
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


def _claims(shares: OwnerShares, limits: Limits) -> int:
    """Places that an owner beyond its part must leave to the others."""
    return shares.reserved_links if shares.live_links >= limits.live_links // shares.owners else 0


def _named(limit: int, shares: OwnerShares) -> str:
    """The limit that holds for this link, in words."""
    kept = f"{_ceiling(limit, shares)} of {limit} for first links (the rest is kept for handovers), the limit"
    return kept if shares.first else f"the limit of {limit}"


def _ceiling(limit: int, shares: OwnerShares) -> int:
    return max(1, limit * 3 // 4) if shares.first else limit


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum numbers of links and submissions; 0: no maximum."""

    live_links: int = 0
    """Maximum number of pending and running links of all chains."""
    submissions_per_hour: int = 600
    """Of all chains; slurmctld is a shared resource. See ``shares``."""
    submissions_per_hour_per_user: int = 60
    """Of all chains of one owner."""
    pause_after_refusals: int = 3
    """Consecutive rejections that no retry can fix after which a chain pauses; see ``rejections.pauses``."""
    protect_after: int = 5
    """Consecutively rejected chains after which protected mode begins; see ``protection``."""
    refusal_backoff: Seconds = 300
    """Wait after a rejected submission; doubles with each one in a row, see ``rejections``."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Present counts that the limits apply to."""

    live_links: int
    submissions_last_hour: int
    not_before: Seconds
    """This chain's back-off ends here."""
    failures: int = 0
    """Of its links in a row."""
    next_try: Seconds = 0
    """Protected mode: before this time nothing is submitted; 0: it is off."""
    shares: OwnerShares = field(default_factory=OwnerShares)


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether a submission may go out now, and why not."""

    granted: bool
    reason: str = ""


def permit(now: Seconds, usage: Usage, limits: Limits) -> Permit:
    """Grant or reject one submission at ``now``."""
    if now < usage.not_before:
        failed = f"{usage.failures} links in a row have" if usage.failures > 1 else "the last link has"
        why = f"{failed} failed, " if usage.failures else ""
        return Permit(False, f"{why}the next try is at {format_instant(usage.not_before)}")
    if now < usage.next_try:
        return Permit(False, f"protected mode: the next try of any chain is at {format_instant(usage.next_try)}")
    reason = deferral(usage.shares, usage.live_links, usage.submissions_last_hour, limits)
    return Permit(not reason, reason)


KEPT_FOR_ONE = 10
"""The chains of one owner that are kept, in every state, are at most this multiple of the active maximum."""
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Quotas:
    """Maximum numbers of chains, and MiB of their scripts; 0: no maximum."""

    chains_per_user: int = 100
    chains: int = 2_000
    """Of all users. Chains that are over do not count."""
    stored_mb_per_user: int = 64
    stored_mb: int = 512
    """Scripts and environments of all users, in MiB."""


NO_QUOTAS = Quotas(0, 0, 0, 0)
"""For replays."""


def check_quota(tally: Tally, chain: Chain, quotas: Quotas) -> None:
    """Raise ``QuotaExceeded`` where ``chain`` would take its owner beyond a quota."""
    check_count(tally, chain.owner, quotas)
    own, size = tally.of_owner(chain.owner).stored, stored_bytes(chain)
    if quotas.stored_mb_per_user and own + size > quotas.stored_mb_per_user * _MB:
        what = f"would store more than {quotas.stored_mb_per_user} MiB of scripts and environments"
        raise _exceeded(chain.owner, what)
    total = quotas.stored_mb * _MB
    if total and tally.all.stored + size > total and own + size > fair_share(total, _owners(tally, chain.owner)):
        what = f"is beyond its share of the {quotas.stored_mb} MiB for the scripts of all users"
        raise _exceeded(chain.owner, what)


def check_count(tally: Tally, owner: str, quotas: Quotas) -> None:
    """Raise ``QuotaExceeded`` where one more chain, however small, would take ``owner`` beyond a quota."""
    own = tally.of_owner(owner)
    if quotas.chains_per_user and own.not_over >= quotas.chains_per_user:
        raise _exceeded(
            owner, f"has {own.not_over} chains that are not over (limit {quotas.chains_per_user} per user)"
        )
    if quotas.chains_per_user and own.chains >= KEPT_FOR_ONE * quotas.chains_per_user:
        what = f"has {own.chains} chains in all; the oldest that are over are deleted from time to time"
        raise _exceeded(owner, what)
    share = fair_share(quotas.chains, _owners(tally, owner))
    if quotas.chains and tally.all.not_over >= quotas.chains and own.not_over >= share:
        raise _exceeded(owner, f"is beyond its share of the {quotas.chains} chains of all users")


def without_script(record: ChainRecord) -> ChainRecord:
    """The record of a chain that will submit nothing any more; its script and environment are not kept."""
    if not record.over or record.live:
        return record
    chain = record.chain
    request = without_text(chain.request)
    return record if request is chain.request else replace(record, chain=replace(chain, request=request))


def _owners(tally: Tally, owner: str) -> int:
    return len(tally.owners) + (owner not in tally.owners)


def _exceeded(owner: str, what: str) -> QuotaExceeded:
    return QuotaExceeded(f"{owner} {what}; cancel chains, or ask an administrator")

"""Quotas of the users: chains, and bytes of scripts and environments. Pure.

As with submissions, half of each total is divided among the owners, so that no owner's chains keep another's out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.domain.errors import QuotaExceeded
from mirage.domain.script import without_text
from mirage.provisioner.shares import fair_share
from mirage.provisioner.tally import stored_bytes

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainRecord
    from mirage.provisioner.tally import Tally

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

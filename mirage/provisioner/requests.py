"""Effects of commands on the chains. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainRecord, ChainStatus
from mirage.domain.command import (
    AddChain,
    CancelChain,
    ChainCommand,
    Command,
    LiftProtection,
    PauseChain,
    PutAway,
    ResumeChain,
    UpdateChain,
)
from mirage.domain.errors import ChainOver, ConfigError, UnknownChain
from mirage.domain.job import ABSENT
from mirage.domain.link import LinkState
from mirage.provisioner import machine
from mirage.provisioner.events import CancelAsked, LinkSubmitted, PauseAsked, RefusalsForgiven, ResumeAsked
from mirage.provisioner.quotas import NO_QUOTAS, Quotas, check_quota
from mirage.provisioner.updating import changes, updated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.chain import ChainId
    from mirage.domain.command import AdoptedJob
    from mirage.domain.job import Seconds
    from mirage.provisioner.tally import Tally


def obey(tally: Tally, command: ChainCommand, now: Seconds, quotas: Quotas = NO_QUOTAS) -> ChainRecord:
    """The record that the command adds or changes.

    Raises ``UnknownChain``, ``ConfigError`` for a chain whose id is taken or whose adopted job is another chain's
    link, ``ChainOver``, and ``QuotaExceeded``.
    """
    if isinstance(command, AddChain):
        return _added(tally, command, now, quotas)
    record = _found(tally, command.chain_id)
    if record.over and not (isinstance(command, CancelChain) and record.live):
        advice = "nothing to cancel" if isinstance(command, CancelChain) else "submit it again"
        raise ChainOver(f"chain {command.chain_id} is over ({record.status}: {record.reason}); {advice}")
    match command:
        case PauseChain(by=by):
            return machine.apply(record, PauseAsked(f"by {by}"), now)
        case ResumeChain():
            return machine.apply(record, ResumeAsked(), now)
        case CancelChain():
            return machine.apply(record, CancelAsked(), now)
        case UpdateChain():
            return updated(record, command, now)


def forgiven(records: Iterable[ChainRecord], now: Seconds) -> tuple[ChainRecord, ...]:
    """The chains that protected mode was about, free to try again."""
    return tuple(machine.apply(record, RefusalsForgiven(), now) for record in records if record.refused != ABSENT)


def put_away(record: ChainRecord, command: PutAway, now: Seconds) -> ChainRecord:
    """The chain of a user who has gone, over, and no longer under a name that is another's.

    Its jobs are left alone: no user may act for their owner.
    """
    owner = f"uid:{command.uid}"
    chain = replace(record.chain, owner=owner, request=replace(record.chain.request, user=owner))
    for link in record.live:
        ended = link.end if ABSENT < link.end <= now else max(now, link.start)
        record = record.with_link(replace(link, state=LinkState.LOST, end=ended if link.started else ABSENT))
    if record.over:
        return replace(record, chain=chain)
    reason = f"the name {command.name} no longer belongs to UID {command.uid}, who owns this chain"
    return replace(record, chain=chain, status=ChainStatus.STOPPED, reason=reason)


def sentence(command: Command) -> str:
    """Return the text of a command, for the journal and the caller."""
    match command:
        case AddChain(chain, by, adopted):
            first = f"; job {adopted.job_id} is its link 1" if adopted is not None else ""
            return f"chain {chain.chain_id} added by {by}{first}"
        case PauseChain(chain_id, by):
            return f"chain {chain_id} paused by {by}"
        case ResumeChain(chain_id, by):
            return f"chain {chain_id} resumed by {by}"
        case CancelChain(chain_id, by):
            return f"chain {chain_id} cancelled by {by}"
        case UpdateChain(before, after, by):
            return f"chain {before.chain_id} updated by {by}: {changes(before, after)}"
        case LiftProtection(by):
            return f"protected mode lifted by {by}: all chains may try again"
        case PutAway(name, uid):
            return f"chains and tokens of {name} ended: the name no longer belongs to UID {uid}"


def _added(tally: Tally, command: AddChain, now: Seconds, quotas: Quotas) -> ChainRecord:
    chain = command.chain
    if chain.chain_id in tally.shares:
        raise ConfigError("chain", f"chain {chain.chain_id} exists already; choose another ID")
    check_quota(tally, chain, quotas)
    if command.adopted is None:
        return ChainRecord(chain)
    _check_free(tally, chain.owner, command.adopted)
    return _adopting(ChainRecord(chain), command.adopted, f"adopted by {command.by}", now)


def _check_free(tally: Tally, owner: str, job: AdoptedJob) -> None:
    """Raise ``ConfigError`` where the job is a link of another chain: both would follow it."""
    for share in tally.shares.values():
        record = share.record
        if share.live and record.chain.owner == owner and any(link.job_id == job.job_id for link in record.live):
            raise ConfigError(f"job {job.job_id}", f"it is already a link of chain {record.chain.chain_id}")


def _adopting(record: ChainRecord, job: AdoptedJob, reason: str, now: Seconds) -> ChainRecord:
    """The record with the job as its first link, known by its ID from now on: whatever becomes of it is its end.

    It is never steered: its owner submitted it, and may hold it.
    """
    record = machine.apply(record, LinkSubmitted(1, job.job_id, job.submit), now)
    return record.with_link(replace(record.links[0], reason=reason, unpinned=True, job_submit=job.submit))


def _found(tally: Tally, chain_id: ChainId) -> ChainRecord:
    if chain_id not in tally.shares:
        raise UnknownChain(f"no chain {chain_id}; `mirage chains` lists all chains")
    return tally.shares[chain_id].record

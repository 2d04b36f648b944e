"""Effects of commands on the chains, among them other settings for a chain that lives. Pure.

Only what concerns links to come is changed. What a link on the cluster was submitted with stays, its script and
limit. One that waits and is no longer required, or is held in another way than links are from now on, is
withdrawn: its job is cancelled, and where a link is to follow it is submitted again once that one is gone.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from mirage.domain.chain import ChainRecord, ChainStatus, Steering
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
from mirage.provisioner.failures import suffices
from mirage.provisioner.limits import NO_QUOTAS, Quotas, check_quota

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirage.domain.chain import Chain, ChainId
    from mirage.domain.command import AdoptedJob
    from mirage.domain.job import Seconds
    from mirage.provisioner.tally import Tally

_UNSEEN = "it is not known yet whether link {} has reached Slurm; retry in a minute"


def updated(record: ChainRecord, command: UpdateChain, now: Seconds) -> ChainRecord:
    """The record with the chain as it is to be. Raises ``ConfigError`` where its links do not let it."""
    before, after = command.before, command.after
    if record.chain != before:
        raise ConfigError("chain", f"{before.chain_id} was changed in the meantime; check it, then retry")
    if after == before:
        raise ConfigError("chain", f"{before.chain_id} has these values already; nothing was changed")
    ran = sum(link.worked for link in record.links)
    if after.done.links and after.done.links < ran:
        raise ConfigError(
            "done.links", f"{after.done.links} is less than the {ran} links that have run or run now"
        )
    if after.request.limit != before.request.limit:
        record = _with_limits(record)
    return _fitting(replace(record, chain=after), before, now)


def _fitting(record: ChainRecord, before: Chain, now: Seconds) -> ChainRecord:
    """The record without a waiting link that does not fit the chain as it is now."""
    waiting, chain = record.waiting, record.chain
    if waiting is None or waiting.index == 1:
        return record
    if not suffices(record) and _ends(chain) == _ends(before):
        if chain.method is before.method:
            return record
        if before.method is Steering.OFF or waiting.unpinned:  # nothing of ours keeps it back but a dependency
            return record.with_link(replace(waiting, unpinned=True))
    if waiting.state is LinkState.PLANNED:
        raise ConfigError("chain", _UNSEEN.format(waiting.index))
    return record.with_link(replace(waiting, retired=now, withdrawn=True))


def _ends(chain: Chain) -> tuple[object, ...]:
    """End conditions of the chain: a waiting link checks them before its script starts, as of its submission."""
    return chain.done.exit_code, chain.done.file, chain.failures


def _with_limits(record: ChainRecord) -> ChainRecord:
    """Links that Slurm has not started keep the limit that they were submitted with, which is the chain's."""
    for link in record.live:
        if link.state is LinkState.PLANNED:
            raise ConfigError("request.limit", _UNSEEN.format(link.index))
        if link.limit == ABSENT:
            record = record.with_link(replace(link, limit=record.chain.request.limit))
    return record


def changes(before: Chain, after: Chain) -> str:
    """Differences, field by field: ``done.links 8 (was 5)``."""
    old, new = dict(_settings(before)), dict(_settings(after))
    differing = [name for name in new if new[name] != old.get(name)]
    return ", ".join(f"{name} {_spelled(new[name])} (was {_spelled(old.get(name))})" for name in differing)


def _settings(chain: Chain) -> Iterator[tuple[str, Any]]:
    return _leaves(asdict(replace(chain, request=replace(chain.request, batch=None))))


def _leaves(values: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value


def _spelled(value: object) -> str:
    return "none" if value is None or value == "" else str(value)


def apply_command(tally: Tally, command: ChainCommand, now: Seconds, quotas: Quotas = NO_QUOTAS) -> ChainRecord:
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
            first += f", because {adopted.why}" if adopted is not None and adopted.why else ""
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
    because = f", because {command.adopted.why}" if command.adopted.why else ""
    return _adopting(ChainRecord(chain), command.adopted, f"adopted by {command.by}{because}", now)


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

"""What a command does to the chains. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import ChainRecord
from mirage.domain.command import (
    AddChain,
    CancelChain,
    ChainCommand,
    Command,
    LiftProtection,
    PauseChain,
    ResumeChain,
)
from mirage.domain.errors import ConfigError, UnknownChain
from mirage.domain.job import ABSENT
from mirage.provisioner import machine
from mirage.provisioner.events import CancelAsked, PauseAsked, RefusalsForgiven, ResumeAsked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.chain import ChainId
    from mirage.domain.job import Seconds


def obey(records: Iterable[ChainRecord], command: ChainCommand, now: Seconds) -> ChainRecord:
    """The record that the command adds or changes.

    Raises ``UnknownChain``, and ``ConfigError`` for a chain whose id is taken.
    """
    if isinstance(command, AddChain):
        return _added(records, command)
    record = _found(records, command.chain_id)
    match command:
        case PauseChain(by=by):
            return machine.apply(record, PauseAsked(f"by {by}"), now)
        case ResumeChain():
            return machine.apply(record, ResumeAsked(), now)
        case CancelChain():
            return record if record.over and not record.live else machine.apply(record, CancelAsked(), now)


def forgiven(records: Iterable[ChainRecord], now: Seconds) -> tuple[ChainRecord, ...]:
    """The chains that protected mode was about, free to try again."""
    return tuple(machine.apply(record, RefusalsForgiven(), now) for record in records if record.refused != ABSENT)


def sentence(command: Command) -> str:
    """What was asked, for the journal and the one who asked."""
    match command:
        case AddChain(chain, by):
            return f"chain {chain.chain_id} added by {by}"
        case PauseChain(chain_id, by):
            return f"chain {chain_id} paused by {by}"
        case ResumeChain(chain_id, by):
            return f"chain {chain_id} resumed by {by}"
        case CancelChain(chain_id, by):
            return f"chain {chain_id} cancelled by {by}"
        case LiftProtection(by):
            return f"protected mode lifted by {by}: all chains may try again"


def _added(records: Iterable[ChainRecord], command: AddChain) -> ChainRecord:
    chain = command.chain
    if any(record.chain.chain_id == chain.chain_id for record in records):
        raise ConfigError("chain", f"there is a chain {chain.chain_id} already; give it another id")
    return ChainRecord(chain)


def _found(records: Iterable[ChainRecord], chain_id: ChainId) -> ChainRecord:
    for record in records:
        if record.chain.chain_id == chain_id:
            return record
    raise UnknownChain(f"there is no chain {chain_id}; `mirage chains` lists them")

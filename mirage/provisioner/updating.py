"""Other settings for a chain that lives. Pure.

Only what concerns links to come is changed. What a link on the cluster was submitted with stays, its script and
limit. One that waits and is no longer required, or is held in another way than links are from now on, is
withdrawn: its job is cancelled, and where a link is to follow it is submitted again once that one is gone.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from mirage.domain.chain import Steering
from mirage.domain.errors import ConfigError
from mirage.domain.job import ABSENT
from mirage.domain.link import LinkState
from mirage.provisioner.enough import suffices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.command import UpdateChain
    from mirage.domain.job import Seconds

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
    return record.with_link(replace(waiting, retired=now))


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

"""Other settings for a chain that lives. Pure.

Only what concerns links to come is changed. What a link on the cluster was submitted with stays: its
script, its limit, and what keeps it back.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from mirage.domain.chain import LinkState
from mirage.domain.errors import ConfigError
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.command import UpdateChain


def updated(record: ChainRecord, command: UpdateChain) -> ChainRecord:
    """The record with the chain as it is to be. Raises ``ConfigError`` where its links do not let it."""
    before, after = command.before, command.after
    if record.chain != before:
        raise ConfigError("chain", f"{before.chain_id} was changed meanwhile: look at it again, then repeat this")
    if after == before:
        raise ConfigError("chain", f"{before.chain_id} is so already: nothing was changed")
    planned = len(record.links)
    if after.done.links and after.done.links < planned:
        raise ConfigError("done.links", f"{after.done.links}, but link {planned} is on its way or has run")
    waiting = record.waiting
    if after.method is not before.method and waiting is not None and waiting.index > 1:
        raise ConfigError(
            "predictor, aim, steering",
            f"link {waiting.index} waits by {before.method.value} already and cannot change to "
            f"{after.method.value}: repeat this when it runs, or cancel its job first",
        )
    if after.request.limit != before.request.limit:
        record = _with_limits(record)
    return replace(record, chain=after)


def _with_limits(record: ChainRecord) -> ChainRecord:
    """Links that Slurm has not started keep the limit that they were submitted with, which is the chain's."""
    for link in record.live:
        if link.state is LinkState.PLANNED:
            text = f"whether link {link.index} has reached Slurm is not known yet: repeat this in a minute"
            raise ConfigError("request.limit", text)
        if link.limit == ABSENT:
            record = record.with_link(replace(link, limit=record.chain.request.limit))
    return record


def changes(before: Chain, after: Chain) -> str:
    """What differs, field by field: ``done.links 8 (was 5)``."""
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

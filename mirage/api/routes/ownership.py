"""Whose chain it is: everybody finds their own, administrators all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import ChainId
from mirage.domain.errors import NotPermitted, UnknownChain

if TYPE_CHECKING:
    from mirage.api.access.caller import Caller
    from mirage.api.port import ApiService
    from mirage.domain.chain import ChainRecord


def own_chain(asked: str, caller: Caller, service: ApiService) -> ChainRecord:
    """The chain with this id, or one's own with this name: the one that is not over, else the last.

    Raises ``UnknownChain``, also where several are meant, and ``NotPermitted`` for another user's.
    """
    chains = service.status().chains
    for record in chains:
        if record.chain.chain_id == ChainId(asked):
            if record.chain.owner != caller.name and not caller.is_admin:
                raise NotPermitted(f"chain {asked} is not {caller.name}'s")
            return record
    named = [record for record in chains if record.chain.name == asked and record.chain.owner == caller.name]
    lasting = [record for record in named if not record.over]
    if len(lasting) > 1:
        ids = ", ".join(record.chain.chain_id for record in lasting)
        raise UnknownChain(f"{len(lasting)} of your chains are called {asked[:80]}: say which of {ids}")
    if named:
        return (lasting or named)[-1]
    raise UnknownChain(f"there is no chain {asked[:80]}; `mirage chains --all` lists yours")

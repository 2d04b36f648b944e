"""Whose chain it is: everybody finds their own, administrators all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.api.conventions.problems import NotYours
from mirage.domain.chain import ChainId
from mirage.domain.chainid import owned_id
from mirage.domain.errors import UnknownChain

if TYPE_CHECKING:
    from mirage.api.access.caller import Caller
    from mirage.api.port import ApiService
    from mirage.domain.chain import ChainRecord


def own_chain(asked: str, caller: Caller, service: ApiService) -> ChainRecord:
    """The chain with this id, which one may give without one's mark, or one's own with this name.

    Of several with the name, it is the one that is not over, else the last.

    Raises ``UnknownChain``, also where several are meant, and in the same words ``NotYours``.
    """
    chains = service.status().chains
    unknown = f"there is no chain {asked[:80]}; `mirage chains --all` lists yours"
    meant = next((record for record in chains if record.chain.chain_id == ChainId(asked)), None)
    if meant is not None and caller.may_touch(meant.chain.owner):
        return meant
    marked = owned_id(asked, caller.name)
    for record in chains:
        if record.chain.chain_id == marked and record.chain.owner == caller.name:
            return record
    named = [record for record in chains if record.chain.name == asked and record.chain.owner == caller.name]
    lasting = [record for record in named if not record.over]
    if len(lasting) > 1:
        ids = ", ".join(record.chain.chain_id for record in lasting)
        raise UnknownChain(f"{len(lasting)} of your chains are called {asked[:80]}: say which of {ids}")
    if named:
        return (lasting or named)[-1]
    if meant is not None:
        raise NotYours(unknown, meant.chain.chain_id)
    raise UnknownChain(unknown)

"""What a user may see of the daemon's state: own chains, for administrators all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mirage.api.conventions.problems import NotYours
from mirage.domain.chain import ChainId
from mirage.domain.errors import UnknownChain
from mirage.domain.tags import bears_other_mark, owned_id
from mirage.provisioner.service import state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.api.access.caller import Caller
    from mirage.api.port import ApiService
    from mirage.control.status import Status
    from mirage.domain.chain import ChainRecord


class Visible:
    """The chains of one user, or of all, in one status."""

    def __init__(self, status: Status, name: str, *, every: bool) -> None:
        self._status, self._every = status, every
        self.records: tuple[ChainRecord, ...] = tuple(
            record for record in status.chains if every or record.chain.owner == name
        )

    @property
    def sentence(self) -> str:
        """Result of the last cycle for these chains."""
        if self._every or not self._status.asked:
            return self._status.sentence  # of a daemon on standby it names no chain
        told = (self._status.explained.get(record.chain.chain_id, "") for record in self.records)
        return "; ".join(dict.fromkeys(filter(None, told)))

    @property
    def by_status(self) -> dict[str, int]:
        """Number of chains by status."""
        return dict(Counter(str(record.status) for record in self.records))

    @property
    def by_state(self) -> dict[str, int]:
        """Number of chains by state."""
        return dict(Counter(str(state_of(record)) for record in self.records))


_ANOTHERS, _NO_CHAIN = "another's chain", "no such chain"
"""Audit result for an ID with another user's mark."""


def own_chain(asked: str, caller: Caller, service: ApiService) -> ChainRecord:
    """Return the chain with this ID, also without the owner's mark, or the caller's chain with this name.

    Of several chains with the name: the unfinished one, else the last.

    Raises ``UnknownChain``, also if several match, and with the same text ``NotYours``.
    """
    chains, index = service.status().chains, service.index
    unknown = f"there is no chain {asked[:80]}; `mirage chains --all` lists yours"
    own, meant = index.owned(chains, caller.name), index.find(chains, ChainId(asked))
    if caller.is_admin and meant is not None:
        return meant
    if found := _one_of(own, asked, caller.name):
        return found
    if bears_other_mark(asked, caller.name) and not caller.is_admin:
        raise NotYours(unknown, ChainId(asked), _NO_CHAIN if meant is None else _ANOTHERS)
    raise UnknownChain(unknown)


def _one_of(own: Sequence[ChainRecord], asked: str, owner: str) -> ChainRecord | None:
    """Find one of a user's chains. Raises ``UnknownChain`` if several match."""
    for chain_id in (ChainId(asked), owned_id(asked, owner)):
        if found := next((record for record in own if record.chain.chain_id == chain_id), None):
            return found
    named = [record for record in own if record.chain.name == asked]
    lasting = [record for record in named if not record.over]
    if len(lasting) > 1:
        ids = ", ".join(record.chain.chain_id for record in lasting)
        raise UnknownChain(f"{len(lasting)} of your chains have the name {asked[:80]}; give an ID: {ids}")
    return (lasting or named)[-1] if named else None

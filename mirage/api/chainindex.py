"""Index of chains: the time of a look-up must not show which chains of other users exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.domain.chain import ChainId, ChainRecord


@dataclass(frozen=True, slots=True)
class _Built:
    records: Sequence[ChainRecord]
    by_id: Mapping[str, ChainRecord]
    by_owner: Mapping[str, Sequence[ChainRecord]]


class ChainIndex:
    """Chains by ID and by owner, built once per state of the daemon. Any thread may use it.

    A look-up takes the same time for an unknown ID. One among a user's chains depends on the number of these.
    """

    def __init__(self) -> None:
        self._built = _Built((), {}, {})

    def find(self, records: Sequence[ChainRecord], chain_id: ChainId) -> ChainRecord | None:
        """Return the chain with this ID, or ``None``; the first if there are two."""
        return self._of(records).by_id.get(chain_id)

    def owned(self, records: Sequence[ChainRecord], owner: str) -> Sequence[ChainRecord]:
        """Return the chains of this user, in order."""
        return self._of(records).by_owner.get(owner, ())

    def _of(self, records: Sequence[ChainRecord]) -> _Built:
        built = self._built
        if built.records is not records:
            by_id: dict[str, ChainRecord] = {}
            by_owner: dict[str, list[ChainRecord]] = {}
            for record in records:
                by_id.setdefault(record.chain.chain_id, record)
                by_owner.setdefault(record.chain.owner, []).append(record)
            built = self._built = _Built(records, by_id, by_owner)
        return built

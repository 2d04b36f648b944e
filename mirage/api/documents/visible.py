"""The part of the loop's state that a user may see: own chains, for administrators all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mirage.provisioner.service import state_of

if TYPE_CHECKING:
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

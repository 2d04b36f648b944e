"""All that the interface needs of the daemon."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirage.api.access.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from mirage.api.feed import Feed
    from mirage.backends.acting.orders import OrderDesk
    from mirage.control.status import Status
    from mirage.domain.chain import ChainId
    from mirage.domain.command import Command
    from mirage.domain.journal import Entry
    from mirage.store.journal import SqlJournal


@dataclass(frozen=True, slots=True)
class ApiService:
    """The daemon as the interface sees it; every callable may be called from any thread."""

    status: Callable[[], Status]
    """The state after the last cycle."""
    ask: Callable[[Command], Future[str]]
    """Puts a command before the loop."""
    entries: Callable[[ChainId, int], Sequence[Entry]]
    """The last so many entries of the journal about a chain, newest first. May raise ``StoreUnavailable``."""
    desk: OrderDesk | None = None
    """Where users' agents fetch their orders; ``None`` where links are submitted in another way."""
    admins: frozenset[str] = frozenset()
    """Users who see and change the chains of all; root does anyway."""
    chain_defaults: Mapping[str, Any] = field(default_factory=dict)
    """What a new chain gets where its owner does not say, in the form of a chain's document."""
    patience: float = 60.0
    """Seconds that a command may wait for the loop."""
    journal: SqlJournal | None = None
    """What happened and was decided, page by page."""
    feed: Feed | None = None
    """The same as it happens."""
    gate: Gate = field(default_factory=Gate)
    """Who comes in, and how far."""
    url: Callable[[], str] = str
    """Where browsers find the daemon; empty: nowhere."""

"""What is to be done beside the loop so that predictors have what they want."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.daemon.history import AccountingImport, Kept
from mirage.daemon.housekeeping import Chore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

    from mirage.bootstrap.service import Service

_TRY_EVERY = 600.0
"""Whether it is due each knows itself; one that failed is tried again soon."""
_SHORTEST = 30.0
_IMPORTED = "jobs-imported.json"


def learning_chores(service: Service, stopped: Event) -> Iterator[Chore]:
    """Those of a service; each ends soon when ``stopped`` is set."""
    often = max(_SHORTEST, min(_TRY_EVERY, 3_600 / service.clock.rate))
    lore = service.lore
    if lore.refresh is not None:
        yield Chore("standings", often, 0.0, lore.refresh)
    if lore.history is not None:
        marker, span = Path(service.config.service.state) / _IMPORTED, service.config.store.history
        kept = Kept(service.store.waits, service.store.jobs, service.jobs.refresh)
        found = AccountingImport(lore.history, kept, service.clock, marker, span, stopped)
        yield Chore("history", often, 0.0, found.run)

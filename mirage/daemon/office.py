"""Leader lease renewal in a separate thread, so that a long cycle cannot lose the lease."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from mirage.bootstrap.leadership import open_campaign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.config.model import Config
    from mirage.control.campaign import Campaign

_LOG = logging.getLogger(__name__)

_FIRST_STEPS = 3
"""As many as it takes to look, to take a lease that is free, and to look again where another was faster."""
_PATIENCE = 15.0
"""Real seconds to wait for a running query as the process ends; a database may hang."""
_AFTER_FAULT = 5.0


def _nothing() -> None:
    pass


class Office:
    """Steps through the leader election until closed; its thread calls ``changed`` when the term changes."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.changed: Callable[[], None] = _nothing
        self._ended = Event()
        self._thread = Thread(target=self._run, name="office", daemon=True)

    def start(self) -> None:
        """Know whether this daemon leads when it returns; where the database does not answer, it does not."""
        for _ in range(_FIRST_STEPS):
            if self.campaign.step():
                break
        self._thread.start()

    def close(self) -> None:
        """Hand the lease back. Whatever only a leader may do must have ended before."""
        self._ended.set()
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self.campaign.resign()

    def _run(self) -> None:
        term, wait = self.campaign.term, 0.0
        while not self._ended.wait(wait):
            wait = self._step()
            if self.campaign.term != term:
                term = self.campaign.term
                self.changed()

    def _step(self) -> float:
        try:
            return self.campaign.step()
        except Exception:
            _LOG.exception("event=internal_error text=%r", "lease renewal: bug in Mirage; report the traceback")
            return _AFTER_FAULT


@contextmanager
def open_office(config: Config) -> Iterator[Office]:
    """An office on the configured store; raises as ``open_store``."""
    with open_campaign(config) as campaign:
        office = Office(campaign)
        office.start()
        try:
            yield office
        finally:
            office.close()

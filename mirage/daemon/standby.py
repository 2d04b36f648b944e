"""Standby daemon: shows what the leader stores, and waits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirage.control.cycle import Cycle
from mirage.domain.errors import ConfigError, MirageError, StoreUnavailable
from mirage.domain.job import NEVER

if TYPE_CHECKING:
    from mirage.bootstrap.service import Service

_LOG = logging.getLogger(__name__)


class Standby:
    """Takes turns as a ``Supervisor`` does, and asks Slurm for nothing."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._said = ""
        self.failures = 0
        """Turns failed in a row."""

    def cycle(self) -> Cycle:
        """Read what is stored by now; a sentence that says who leads."""
        why = self._service.tenure.impediment()
        for asked in self._service.commands.take_all():
            asked.answer.set_exception(MirageError(f"this daemon does not act now: {why}"))
        sentence = f"stands by: {why}"
        if sentence != self._said:
            _LOG.info("event=standby reason=%r", why)
            self._said = sentence
        try:
            self._service.stand_by(sentence)
        except (StoreUnavailable, ConfigError) as error:
            self.failures += 1
            loop = self._service.loop
            loop.status = loop.status.failing(f"{why}; cannot read the stored chains: {error}")
            _LOG.warning("event=stored_state_unavailable error=%r", str(error))
        else:
            self.failures = 0
        return Cycle(sentence, NEVER, deciding=False)

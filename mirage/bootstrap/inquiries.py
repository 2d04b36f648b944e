"""What people may ask of predictors: those at work, and by name any other that is installed."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from mirage.bootstrap.predictors import named_predictor
from mirage.control.guard import Guard
from mirage.domain.errors import PluginNotFound
from mirage.predictors.reactive import Reactive

if TYPE_CHECKING:
    from mirage.bootstrap.service import Service
    from mirage.control.guard import Guards

_MOST = 8
"""Kept, since building one may take seconds."""
_NAME = re.compile(r"[a-z0-9_-]{1,40}(:[A-Za-z0-9][A-Za-z0-9_.:+%-]{0,120})?")
"""No path of this machine: trained models by their names and versions only."""


class NamedGuards:
    """Predictors that are asked because somebody named them. For every thread but the loop's."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._at_work: Guards | None = None
        self._built: dict[str, Guard] = {}

    def of(self, name: str) -> Guard | None:
        """Its guard, for the loop's thread; ``None``: it is asked anyway.

        Raises ``PluginNotFound`` and ``ConfigError``.
        """
        if not _NAME.fullmatch(name):
            raise PluginNotFound(
                f"no predictor {name[:80]!r}: expected a name such as quantile, fixed:6h or xgboost"
            )
        guards = self._service.guards
        at_work = (guards.of(""), *guards.shadows)
        if name in {guard.predictor.name for guard in at_work}:
            return None
        with self._lock:
            if self._at_work is not guards:  # another configuration, or another model in use
                self._forget(len(self._built))
                self._at_work = guards
            if name not in self._built:
                self._forget(len(self._built) - _MOST + 1)
                self._built[name] = self._build(name)
            return self._built[name]

    def _build(self, name: str) -> Guard:
        service = self._service
        predictor = named_predictor(name, service.config, service.lore)
        if service.lore.jobs is None:
            service.jobs.jobs(predictor.wants.history)  # read now, not by the loop
        return Guard(predictor, Reactive(), service.config.loop.budget)

    def _forget(self, count: int) -> None:
        for name in list(self._built)[: max(0, count)]:
            self._built.pop(name).close()

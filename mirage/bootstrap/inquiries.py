"""Prediction requests of users: to the active and shadow predictors, and by name to any installed one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.predictors.naming import check_name

if TYPE_CHECKING:
    from mirage.bootstrap.service import Service
    from mirage.control.guard import Asker, Guard

LONGEST_BUILD = 30.0
"""Seconds that a caller waits for a predictor to be built."""


def named_guard(service: Service, name: str, asker: Asker) -> Guard | None:
    """Return the guard of a named predictor; ``None``: it predicts in any case. Not for the loop's thread.

    Raises ``PluginNotFound`` and ``ConfigError``.
    """
    check_name(name)
    guards = service.guards
    guard = guards.prepare(name, LONGEST_BUILD, asker)
    if guard in (guards.of(""), *guards.shadows):
        return None
    if service.lore.jobs is None:
        service.jobs.jobs(guard.predictor.wants.history)  # read now, not by the loop
    return guard

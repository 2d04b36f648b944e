"""How good the predictors have been on this daemon's own hand-overs, measured now and then."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from mirage.domain.job import JobRequest
from mirage.features.waitclass import class_of
from mirage.replay.shadows import compared
from mirage.replay.watched import judged_handovers

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.objective import Weights
    from mirage.ports import Clock
    from mirage.replay.shadows import Measured
    from mirage.replay.watched import JudgedHandover
    from mirage.store.opening import Store

SPAN = 30 * 86_400
"""How far back hand-overs count."""
_HOLDS = 300.0
"""Real seconds; hand-overs are rare and measuring reads much."""


class Measurements:
    """For every thread but the loop's: measuring may take seconds."""

    def __init__(self, store: Store, clock: Clock, weights: Callable[[], Weights]) -> None:
        self._store = store
        self._clock = clock
        self._weights = weights
        self._lock = threading.Lock()
        self._judged: tuple[JudgedHandover, ...] = ()
        self._until = 0.0

    def of(self, alike: JobRequest | None = None) -> tuple[Measured, ...]:
        """Every predictor, those in charge first; ``alike``: where links were of the class of such a job.

        Raises ``StoreUnavailable``.
        """
        judged = self._latest()
        if alike is not None:
            judged = tuple(each for each in judged if _class(each) == class_of(alike))
        return compared((each.judged for each in judged), self._weights())

    def _latest(self) -> tuple[JudgedHandover, ...]:
        with self._lock:
            if time.monotonic() >= self._until:
                self._judged = tuple(judged_handovers(self._store, self._clock.now() - SPAN))
                self._until = time.monotonic() + _HOLDS
            return self._judged


def _class(handover: JudgedHandover) -> tuple[int, int]:
    return class_of(JobRequest("", "", handover.limit, handover.nodes))

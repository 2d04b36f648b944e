"""Accuracy of the predictors on this daemon's own handovers, measured periodically."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.job import JobRequest
from mirage.features.waitclass import class_of
from mirage.replay.shadows import compared
from mirage.replay.watched import SPAN, compared_by_partition, judged_handovers

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.job import Seconds
    from mirage.domain.objective import Weights
    from mirage.ports import Clock
    from mirage.replay.shadows import Measured
    from mirage.replay.watched import JudgedHandover
    from mirage.store.opening import Store

LATEST = 300
"""Handovers within ``SPAN``: each is thousands of lines of the journal where all of them have to be read."""
_LAST_LINES = 40
"""Of each link, for its forecasts as it was submitted: there is one line a predictor and cycle."""
_HOLDS = 60.0
"""Real seconds."""
_SHARE = 50.0
"""Validity of a result per second that it took to compute: measuring must not slow down the daemon."""


@dataclass(slots=True)
class _Measuring:
    """One kind of measurement, made by the first caller when it is due; others wait for it."""

    make: Callable[[], tuple[JudgedHandover, ...]]
    lock: threading.Lock = field(default_factory=threading.Lock)
    found: tuple[JudgedHandover, ...] = ()
    until: float = 0.0

    def latest(self) -> tuple[JudgedHandover, ...]:
        with self.lock:
            began = time.monotonic()
            if began >= self.until:
                self.found = self.make()
                took = time.monotonic() - began
                self.until = time.monotonic() + max(_HOLDS, _SHARE * took)
            return self.found


class Measurements:
    """For every thread but the loop's: measuring may take seconds. All raise ``StoreUnavailable``."""

    def __init__(self, store: Store, clock: Clock, weights: Callable[[], Weights]) -> None:
        self._weights, self._clock = weights, clock

        def since() -> int:
            return clock.now() - SPAN

        self._forecasts = _Measuring(lambda: tuple(judged_handovers(store, since(), LATEST, _LAST_LINES)))
        self._whole = _Measuring(lambda: tuple(judged_handovers(store, since(), LATEST)))

    def errors(self, of: JobRequest | str | None = None) -> tuple[Measured, ...]:
        """Every predictor's forecasts against real starts, active predictors first; handovers that a predictor did
        not decide itself are unknown. ``of``: where links were of the class of such a job, or ran in that
        partition."""
        judged = self._forecasts.latest()
        if isinstance(of, str):
            judged = tuple(each for each in judged if each.partition == of)
        elif of is not None:
            judged = tuple(each for each in judged if _class(each) == class_of(of))
        return compared((each.judged for each in judged), self._weights())

    def comparison(self, span: Seconds = SPAN) -> tuple[Measured, ...]:
        """Every predictor in all respects, by partition, on the handovers of the last ``span`` seconds."""
        since = self._clock.now() - span
        return compared_by_partition(
            [each for each in self._whole.latest() if each.start >= since], self._weights()
        )


def _class(handover: JudgedHandover) -> tuple[str, int, int]:
    return class_of(JobRequest("", "", handover.limit, handover.nodes, handover.partition))

"""Estimated run time of a request by model and kind of unit, from the requests that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.request import CostTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_SLOWEST = 0.1
"""Weight of the newest measurement, after many measurements."""
_MOVED = 0.1
"""Relative change of an estimate that makes a new table."""
_GUESS = 0.1
"""Seconds assumed before any measurement."""


class Estimates:
    """Exponentially weighted means of seconds, by model (M) and kind (K); a request is one segment.

    The first measurements count alike (a plain mean), later ones with weight 1/10. An initial estimate counts like
    one measurement.
    """

    def __init__(
        self,
        models: Sequence[str],
        kinds: Sequence[str],
        able: NDArray[np.bool_],
        watts: NDArray[np.float64],
        expected: Mapping[tuple[str, str], float],
    ) -> None:
        """``able``: [M, K] which kinds run which models. ``watts``: [K] power draw of a busy unit."""
        self._models, self._kinds, self._watts = tuple(models), tuple(kinds), watts
        self._count = np.zeros(able.shape, np.int64)
        self._seconds = np.where(able, _GUESS, np.nan)
        for (model, kind), seconds in expected.items():
            if model in self._models and kind in self._kinds:
                self.begin_with(self._models.index(model), self._kinds.index(kind), seconds)
        self._shown = self._table()

    def begin_with(self, model: int, kind: int, seconds: float) -> None:
        """Set an initial estimate; it counts until something has been measured here."""
        if self._count[model, kind] <= 1 and not np.isnan(self._seconds[model, kind]):
            self._seconds[model, kind], self._count[model, kind] = seconds, 1
            self._shown = self._table()

    def observe(self, model: int, kind: int, seconds: float) -> None:
        """Add a measurement, in seconds."""
        self._count[model, kind] += 1
        part = max(1 / self._count[model, kind], _SLOWEST)
        self._seconds[model, kind] += part * (seconds - self._seconds[model, kind])
        shown = self._shown.seconds[model, kind]
        if abs(self._seconds[model, kind] - shown) > _MOVED * shown:
            self._shown = self._table()

    def seconds(self, model: int, kind: int) -> float:
        """[M, K] Seconds of one request; NaN where the kind cannot run the model."""
        return float(self._seconds[model, kind])

    @property
    def table(self) -> CostTable:
        """A new object after each change of an estimate, so that results may be cached by identity."""
        return self._shown

    def document(self) -> dict[str, dict[str, float]]:
        """Measured seconds by model and kind, for the next gateway."""
        return {
            model: {
                kind: float(self._seconds[m, k]) for k, kind in enumerate(self._kinds) if self._count[m, k] > 0
            }
            for m, model in enumerate(self._models)
        }

    def _table(self) -> CostTable:
        count = len(self._models)
        seconds = self._seconds.copy()
        return CostTable(
            models=self._models,
            first=np.arange(count + 1, dtype=np.int32),
            pieces=("request",) * count,
            kinds=self._kinds,
            seconds=seconds,
            compute_seconds=seconds,
            joules=seconds * self._watts,
            dram_bytes=np.zeros(seconds.shape),
        )

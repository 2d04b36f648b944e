"""The reactive baseline: expects no wait, hence submits when the predecessor has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast, Wants

if TYPE_CHECKING:
    from mirage.domain.decision import Observation


class Reactive:
    """What users do who submit the next job when the last one is gone. Never overlaps."""

    wants = Wants()

    name = "reactive"

    def __init__(self, basis: str = "") -> None:
        """``basis``: why no wait is expected, for the reader."""
        self._basis = basis

    def predict(self, observation: Observation) -> WaitForecast:
        """Starts at once."""
        return WaitForecast.point(observation.time, self._basis, "it submits when the predecessor has ended")

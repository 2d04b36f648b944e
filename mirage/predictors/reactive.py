"""The reactive baseline: expects no wait, so it submits when the predecessor has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast, Wants

if TYPE_CHECKING:
    from mirage.domain.decision import Observation


class Reactive:
    """Behaves like a user who submits the next job when the last one has ended. Never overlaps."""

    wants = Wants()

    name = "reactive"

    def __init__(self, basis: str = "") -> None:
        """``basis``: reason for expecting no wait."""
        self._basis = basis

    def predict(self, observation: Observation) -> WaitForecast:
        """Return a start now."""
        return WaitForecast.point(observation.time, self._basis, "it submits when the predecessor has ended")

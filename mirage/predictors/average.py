"""The mean wait of the jobs started last, of any size and limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast, Wants

if TYPE_CHECKING:
    from mirage.domain.decision import Observation


class AverageWait:
    """The ``avg`` baseline of Mirage's authors (the last 100 jobs), renewed at every decision."""

    def __init__(self, count: int, name: str) -> None:
        self.name = name
        self.wants = Wants(waits=count)

    def predict(self, observation: Observation) -> WaitForecast:
        """Now plus the mean wait. Raises ``ValueError`` while no job has started."""
        # More are at hand where another predictor wants more.
        waits = observation.waits.wait[-self.wants.waits :]
        if not len(waits):
            raise ValueError("no job has started yet")
        return WaitForecast.point(observation.time + float(waits.sum()) / len(waits))

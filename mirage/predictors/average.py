"""Mean wait of the last started jobs of the partition, of any size and time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast, Wants
from mirage.features.waitclass import describe_waits, nothing_started

if TYPE_CHECKING:
    from mirage.domain.decision import Observation


class AverageWait:
    """The ``avg`` baseline of Mirage's authors (the last 100 jobs), renewed at every decision."""

    def __init__(self, count: int, name: str) -> None:
        self.name = name
        self.wants = Wants(waits=count)

    def predict(self, observation: Observation) -> WaitForecast:
        """Now plus the mean wait. Raises ``ValueError`` while no job of the partition has started."""
        # There are more if another predictor requires more.
        recent = observation.waits.last(self.wants.waits)
        if not len(recent):
            raise ValueError(nothing_started(recent))
        basis = describe_waits(len(recent), recent.partition, "any size", "any limit")
        return WaitForecast.point(observation.time + float(recent.wait.sum()) / len(recent), basis)

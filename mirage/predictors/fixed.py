"""A fixed lead: submits the successor a fixed time before its predecessor's end, whatever the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast, Wants
from mirage.slurm.duration import spell

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import Seconds


class FixedLead:
    """Rule of production chains with a configured handover time that ignore the queue."""

    wants = Wants()

    def __init__(self, lead: Seconds, name: str) -> None:
        self.name = name
        self._lead = lead

    def predict(self, observation: Observation) -> WaitForecast:
        """Return a start after the lead."""
        rule = f"it submits {spell(self._lead)} before the predecessor's end"
        return WaitForecast.point(observation.time + self._lead, rule=rule)

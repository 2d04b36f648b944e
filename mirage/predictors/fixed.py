"""A fixed lead: submits the successor so long before its predecessor's end, whatever the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast, Wants
from mirage.slurm.duration import spell

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import Seconds


class FixedLead:
    """What production chains use that do not look at the queue (a handover time in their configuration)."""

    wants = Wants()

    def __init__(self, lead: Seconds, name: str) -> None:
        self.name = name
        self._lead = lead

    def predict(self, observation: Observation) -> WaitForecast:
        """Starts after the lead."""
        rule = f"it submits {spell(self._lead)} before the predecessor's end"
        return WaitForecast.point(observation.time + self._lead, rule=rule)

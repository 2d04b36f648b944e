"""A queue of jobs with known waits, as observations show it from time to time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import Observation, PlannedStart, PlanStatus, RecentWaits
from mirage.domain.job import ABSENT, JobRequest
from mirage.domain.snapshot import JobColumns, Snapshot

if TYPE_CHECKING:
    from mirage.domain.decision import Prediction, Wants

HOUR = 3_600
REQUEST = JobRequest("s", "u", 48 * HOUR, 1, "p")


@dataclass(frozen=True)
class Queue:
    """Jobs, by default of one node and 48 hours; times and waits in seconds."""

    submit: np.ndarray
    wait: np.ndarray
    nodes: int = 1
    limit: int = 48 * HOUR

    def seen(self, now: int, planned: int = ABSENT) -> Observation:
        """An observation at ``now``, without later data."""
        start = self.submit + self.wait
        started = np.flatnonzero(start <= now)
        started = started[np.argsort(start[started], kind="stable")]
        ones = np.ones(len(started), dtype=np.int64)
        waits = RecentWaits(start[started], self.wait[started], self.nodes * ones, self.limit * ones, "p")
        pending = self._pending((self.submit <= now) & (start > now))
        snapshot = Snapshot(now, pending, JobColumns.none(), (), (), ("p",), ())
        plan = PlannedStart.known(planned) if planned != ABSENT else PlannedStart(PlanStatus.BEYOND_WINDOW)
        return Observation(now, snapshot, None, REQUEST, waits, plan)

    def _pending(self, rows: np.ndarray) -> JobColumns:
        submit = self.submit[rows]
        zeros = np.zeros(len(submit), dtype=np.int64)
        none = JobColumns(*(zeros,) * len(JobColumns.__dataclass_fields__))
        return replace(none, submit=submit, eligible=submit, nodes=zeros + self.nodes, limit=zeros + self.limit)


def queue(rng: np.random.Generator, days: int, mean_wait: float, every: int = 600) -> Queue:
    """Exponential waits, a job each ``every`` seconds."""
    submit = np.arange(0, days * 24 * HOUR, every) + 60
    return Queue(submit, rng.exponential(mean_wait, len(submit)).astype(np.int64))


class Told:
    """A predictor that answers what a function of the observation says."""

    def __init__(self, name: str, wants: Wants, answer) -> None:
        self.name = name
        self.wants = wants
        self._answer = answer

    def predict(self, observation: Observation) -> Prediction:
        """Returns the given prediction."""
        return self._answer(observation)

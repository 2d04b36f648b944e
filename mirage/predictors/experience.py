"""Past predictions and their outcomes: jobs of the same class submitted at that time.

A predictor receives outcomes only through its observations: live, in a replay and in training. A job of any user
in the successor's class (partition, size and limit) is an outcome of the prediction made at its submission: by its
start, or by still waiting. Classes are not mixed: waits of small jobs say little about large ones.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import Wants
from mirage.features.summary import within
from mirage.features.waitclass import SEARCHED, alike, class_of

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import JobRequest, Seconds

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]

WANTED = Wants(waits=SEARCHED, queue=True)
"""Inputs required to see outcomes."""

SPACING = 600
"""Seconds between stored forecasts; jobs submitted until the next one are its outcomes."""

KEPT = 7 * 86_400
"""Seconds for which forecasts and starts are stored: the queue of last month says little about today's."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes of stored forecasts, as columns of equal length."""

    foreseen: Int64
    """Index of the stored forecast of each job."""
    wait: Floats
    """Seconds until the start, or until now, in which only the queue kept the job pending."""
    waits_still: NDArray[np.bool_]


@dataclass(slots=True)
class ClassExperience:
    """Forecasts for jobs of one class, and the starts of such jobs."""

    times: list[Seconds] = field(default_factory=list)
    """Times of the forecasts, ascending."""
    foreseen: list[Floats] = field(default_factory=list)
    """Forecasts, in the shape of the predictor."""
    _submit: Int64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _wait: Int64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _upto: Seconds | None = None
    """Starts up to this time are known."""

    def observe(self, observation: Observation) -> None:
        """Store starts of the class since the last observation; drop the oldest."""
        now, waits = observation.time, observation.waits
        if self._upto is not None and now <= self._upto:
            return
        new = alike(waits.nodes, waits.limit, observation.successor)
        if self._upto is not None:
            new &= waits.start > self._upto
        self._upto = now
        submit = np.concatenate([self._submit, (waits.start - waits.wait)[new]])
        recent = submit >= now - KEPT
        self._submit, self._wait = submit[recent], np.concatenate([self._wait, waits.wait[new]])[recent]
        self.forget(bisect_left(self.times, now - KEPT))

    def foresee(self, now: Seconds, what: Floats) -> None:
        """Store a forecast, unless the last one is too recent."""
        if not self.times or now >= self.times[-1] + SPACING:
            self.times.append(now)
            self.foreseen.append(what)

    def forget(self, count: int) -> None:
        """Drop the oldest forecasts."""
        del self.times[:count], self.foreseen[:count]

    def outcomes(self, observation: Observation) -> Outcomes:
        """Return the outcomes of all stored forecasts made before now."""
        now, snapshot = observation.time, observation.snapshot
        pending = within(snapshot.pending, snapshot, observation.waits.partition)
        waiting = alike(pending.nodes, pending.limit, observation.successor) & (pending.eligible <= now)
        since = np.maximum(pending.submit, pending.eligible)[waiting]
        submit = np.concatenate([self._submit, since])
        wait = np.concatenate([self._wait, now - since])
        still = np.arange(len(submit)) >= len(self._submit)
        times = np.array([time for time in self.times if time < now], dtype=np.int64)
        place = np.searchsorted(times, submit, side="right") - 1
        answers = place >= 0
        answers[answers] = submit[answers] < times[place[answers]] + SPACING
        return Outcomes(place[answers], wait[answers].astype(np.float64), still[answers])


class Experience:
    """Experience of a predictor, by class."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, int, int], ClassExperience] = {}

    def of(self, request: JobRequest) -> ClassExperience:
        """Return the experience for the class of a request."""
        return self._classes.setdefault(class_of(request), ClassExperience())

"""What a predictor has predicted, and what has come of it: jobs of the same class that were submitted then.

Outcomes reach a predictor by its observations alone, live, in a replay and in training. A job of the successor's
class of partition, size and limit, whoever submitted it, answers what was predicted as it was submitted: by its
start, or by waiting still. Classes are taken at their word: how long small jobs wait says little about large ones.
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
"""What observations must bring for outcomes to be seen."""

SPACING = 600
"""Seconds between forecasts that are remembered; each is answered by the jobs submitted until the next."""

KEPT = 7 * 86_400
"""For so many seconds forecasts and starts are remembered: the queue of last month says little of today's."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Jobs submitted as something was predicted, as columns of equal length."""

    foreseen: Int64
    """Which of the forecasts remembered each job answers."""
    wait: Floats
    """Seconds until the start, or until now, in which the queue alone kept the job."""
    waits_still: NDArray[np.bool_]


@dataclass(slots=True)
class ClassExperience:
    """Forecasts for jobs of one class, and the starts of such jobs."""

    times: list[Seconds] = field(default_factory=list)
    """When something was predicted, ascending."""
    foreseen: list[Floats] = field(default_factory=list)
    """What, in the predictor's own shape."""
    _submit: Int64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _wait: Int64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _upto: Seconds | None = None
    """Starts until then are known."""

    def observe(self, observation: Observation) -> None:
        """Take note of the jobs of the class that have started since the last observation; forget the oldest."""
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
        """Remember what is predicted now, unless something has been just before."""
        if not self.times or now >= self.times[-1] + SPACING:
            self.times.append(now)
            self.foreseen.append(what)

    def forget(self, count: int) -> None:
        """Let go of the oldest forecasts."""
        del self.times[:count], self.foreseen[:count]

    def outcomes(self, observation: Observation) -> Outcomes:
        """Of all forecasts remembered that were made before now."""
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
    """A predictor's experience, by class."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, int, int], ClassExperience] = {}

    def of(self, request: JobRequest) -> ClassExperience:
        """That with jobs like the request."""
        return self._classes.setdefault(class_of(request), ClassExperience())

"""Past predictions and their outcomes, and the conformal correction of quantiles by them.

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

Floats = NDArray[np.float64]

KNEE = 600.0
"""Seconds: shorter waits are compared by difference, longer ones by ratio."""

STEP = 0.1
"""Step of a quantile per round on the scale of ``scaled``: a tenth of the wait beyond the knee."""


def scaled(wait: Floats) -> Floats:
    """Map waits in seconds (0 or more) to a scale that is linear below ``KNEE`` and logarithmic above."""
    found: Floats = np.log1p(wait / KNEE)
    return found


def unscaled(value: Floats) -> Floats:
    """Return the inverse of ``scaled``, at least 0."""
    found: Floats = KNEE * np.expm1(np.maximum(value, 0.0))
    return found


class QuantileTracker:
    """Shifts quantiles of a score so that coverage approaches each level, for any sequence of scores.

    Adaptive conformal inference (Gibbs & Candes, NeurIPS 2021) in its additive form, the quantile tracker of
    Angelopoulos, Candes & Tibshirani (NeurIPS 2023): after each round ``shift += step * (level - covered)``. For
    scores within -b and b the share covered differs from the level by at most ``(b + step) / (step * rounds)``
    (their Proposition 1), for any sequence. Exchangeability is not assumed, so a change of regime only costs
    rounds.
    """

    def __init__(self, levels: tuple[float, ...], step: float = STEP) -> None:
        self._levels = np.array(levels)
        self._step = step
        self.shift: Floats = np.zeros(len(levels))
        """Shift per level, on the scale of the scores."""

    def learn(self, covered: Floats) -> None:
        """Update with one round: share of scores covered by each shifted quantile, shape (levels,).

        ``nan``: unknown.
        """
        told = ~np.isnan(covered)
        self.shift[told] += self._step * (self._levels - covered)[told]


def censored_quantiles(values: Floats, exceeds: NDArray[np.bool_], levels: tuple[float, ...]) -> Floats:
    """Return quantiles of right-censored ``values``; ``nan`` for levels that censoring leaves open.

    ``exceeds``: the value is a lower bound. The quantile is the smallest value at which the estimate of Kaplan &
    Meier (JASA 53, 1958) of the share beyond is at most ``1 - level``. Shape (levels,).
    """
    # Of equal values, censored ones come last: they were still at risk.
    order = np.lexsort((exceeds, values))
    ordered, event = values[order], ~exceeds[order]
    at_risk = len(values) - np.arange(len(values))
    beyond = np.cumprod(np.where(event, 1.0 - 1.0 / at_risk, 1.0))
    reached = beyond[None, :] <= 1.0 - np.array(levels)[:, None] + 1e-12
    first = reached.argmax(axis=1) if len(values) else np.zeros(len(levels), dtype=np.int64)
    found = np.full(len(levels), np.nan)
    known = reached.any(axis=1)
    found[known] = ordered[first[known]]
    return found


Int64 = NDArray[np.int64]

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

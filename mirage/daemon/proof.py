"""Whether a trained model is better than none: the spans for training and test, and what is required. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel

from mirage.documentreading import parse_own_json, reader_of
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.job import Seconds
    from mirage.domain.objective import Weights

_HOUR, _DAY = 3_600, 86_400
LEAST: Seconds = 14 * _DAY
"""Minimum length of the history for a training."""
_WARM_UP: Seconds = 7 * _DAY
"""Maximum time before the first handover: the simulated queue fills, and the first waits are known."""
_TEST: Seconds = 21 * _DAY
"""For how long episodes begin, at most."""
_SETTLED: Seconds = _DAY
"""The longest wait of a successor that counts: how later handovers end is not known yet."""
_GRID: Seconds = 1_800
"""All times are multiples of it."""

TESTED: Seconds = 7 * _DAY
"""The shortest test that counts: handovers of fewer days all meet the same queue."""
FEWEST = 20
"""The least number of handovers of each size."""
BETTER = 0.9
"""The cost divided by that of ``quantile``: a smaller difference may be chance."""
USUAL = "quantile"
"""The reference of every model: it needs no training."""
NAIVE = "reactive"


@dataclass(frozen=True, slots=True)
class Spans:
    """Which handovers are for training, validation and test; seconds since the epoch, and seconds."""

    train_from: Seconds
    validate_from: Seconds
    test_from: Seconds
    test_to: Seconds
    teach_every: Seconds
    test_every: Seconds

    @property
    def tested(self) -> Seconds:
        """Length of the interval in which test episodes begin, in seconds."""
        return self.test_to - self.test_from


def spans_of(first: Seconds, last: Seconds, limit: Seconds) -> Spans | None:
    """For jobs known from ``first`` to ``last`` and links of ``limit`` seconds; ``None``: too short a past.

    The last third is for the test, three weeks at most; the last quarter of the rest for validation. A handover
    takes a link and its successor's wait, so the last one begins that long before the end of a span.
    """
    whole, course = last - first, limit + _SETTLED
    begin = _on_grid(first + max(_DAY, min(_WARM_UP, whole // 6)) + _GRID)
    end = _on_grid(last - course)
    if end - begin < 3 * course:
        return None
    test_from = _on_grid(end - min(_TEST, (end - begin) // 3))
    validate_from = _on_grid(test_from - max((test_from - begin) // 4, course))
    if validate_from - begin < course:
        return None
    teach_every = min(4 * _HOUR, max(_HOUR, _on_grid((test_from - begin) // 150)))
    test_every = min(12 * _HOUR, max(2 * _HOUR, _on_grid((end - test_from) // 50 + _GRID - 1)))
    return Spans(begin, validate_from, test_from, end, teach_every, test_every)


def _on_grid(instant: Seconds) -> Seconds:
    return instant // _GRID * _GRID


@dataclass(frozen=True, slots=True)
class TrialCosts:
    """Costs of one predictor on the tested handovers: mean hours per handover, by their prices."""

    predictor: str
    cost: float
    usual: float
    """Of ``quantile`` on the same handovers."""
    naive: float
    """Of submitting at the end of the predecessor."""
    handovers: int
    """Of all sizes."""
    fewest: int
    """Of the size that has the fewest."""

    def fault(self, tested: Seconds, in_use: TrialCosts | None) -> str:
        """Why it has not proven itself; empty: it has. ``in_use``: the model that it would replace."""
        if tested < TESTED or self.fewest < FEWEST:
            return f"too few data to decide: {self.fewest} handovers in {tested / _DAY:.1f} days"
        if self.cost > BETTER * self.usual or self.cost > self.naive:
            return "no clear gain"
        if in_use is not None and self.cost > in_use.cost:
            return f"the active version has {in_use.cost:.2f} h"
        return ""

    def __str__(self) -> str:
        """Format the costs in hours per handover, for logs."""
        others = f"{USUAL} {self.usual:.2f} h, submitting at the end {self.naive:.2f} h"
        return f"{self.cost:.2f} h a handover ({others}; {self.handovers} handovers)"


class _Mean(BaseModel):
    value: float | None


class _Spread(BaseModel):
    mean: _Mean


class _Method(BaseModel):
    name: str


class _ReportRow(BaseModel):
    method: _Method
    hand_overs: int
    interruption: _Spread
    overlap: _Spread


class _Report(BaseModel):
    rows: list[_ReportRow]


_REPORT = reader_of(_Report)


def proofs_of(report: bytes, weights: Weights) -> dict[str, TrialCosts]:
    """By the predictor's name, of the ``report.json`` of ``mirage evaluate``. Raises ``MirageError``."""
    try:
        rows = _REPORT.validate_python(parse_own_json(report)).rows
    except ValueError as error:
        raise MirageError(f"report.json of the training cannot be read: {error}") from None
    by_name: dict[str, list[_ReportRow]] = {}
    for row in rows:
        by_name.setdefault(row.method.name, []).append(row)
    costs = {name: _cost(of, weights) for name, of in by_name.items()}
    if missing := {USUAL, NAIVE} - costs.keys():
        raise MirageError(f"report.json of the training lacks {', '.join(sorted(missing))}")
    return {
        name: TrialCosts(
            name,
            costs[name],
            costs[USUAL],
            costs[NAIVE],
            sum(row.hand_overs for row in of),
            min(row.hand_overs for row in of),
        )
        for name, of in by_name.items()
    }


def _cost(rows: Sequence[_ReportRow], weights: Weights) -> float:
    handovers = sum(row.hand_overs for row in rows)
    total = sum(
        row.hand_overs
        * (
            weights.interruption * (row.interruption.mean.value or 0)
            + weights.overlap * (row.overlap.mean.value or 0)
        )
        for row in rows
    )
    return total / handovers if handovers else float("inf")

"""Results of requests before, during and after a handover."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.inference.serving.load_client import TimedAnswer

QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Course:
    """Times of the events, from one clock."""

    began: float
    submitted: float
    taken_over: float
    ended: float
    """End of the first link."""


def table(told: Sequence[TimedAnswer], course: Course) -> str:
    """The results as text."""
    at = {name: f"{instant - course.began:.1f} s" for name, instant in _instants(course).items()}
    rows = [f"{'':<28}{'requests':>9}{'failed':>8}" + "".join(f"{name:>9}" for name in QUANTILES) + "   ms"]
    for name, part in _parts(told, course).items():
        times = "".join(f"{value:>9.1f}" for value in _milliseconds(part).values())
        rows.append(f"{name:<28}{len(part):>9}{_failed(part):>8}{times}")
    head = (
        f"The second link was submitted after {at['submitted']}, took over at {at['taken_over']};"
        f" the first ended at {at['ended']}."
    )
    return "\n".join([head, f"{_failed(told)} of {len(told)} requests failed.", *rows, ""])


def document(told: Sequence[TimedAnswer], course: Course) -> str:
    """The same as JSON."""
    parts = {
        name: {"requests": len(part), "failed": _failed(part), "latency_ms": _milliseconds(part)}
        for name, part in _parts(told, course).items()
    }
    seconds = {name: round(instant - course.began, 3) for name, instant in _instants(course).items()}
    return json.dumps({"seconds": seconds, "parts": parts}, indent=1)


def _instants(course: Course) -> dict[str, float]:
    return {"submitted": course.submitted, "taken_over": course.taken_over, "ended": course.ended}


def _parts(told: Sequence[TimedAnswer], course: Course) -> dict[str, list[TimedAnswer]]:
    bounds = {
        "one link": (-np.inf, course.submitted),
        "the second gets ready": (course.submitted, course.taken_over),
        "handover, the first drains": (course.taken_over, course.ended),
        "the second alone": (course.ended, np.inf),
    }
    return {name: [each for each in told if low <= each.due < high] for name, (low, high) in bounds.items()}


def _failed(told: Sequence[TimedAnswer]) -> int:
    return sum(each.status != 200 for each in told)


def _milliseconds(told: Sequence[TimedAnswer]) -> dict[str, float]:
    seconds = [each.seconds for each in told if each.status == 200] or [np.nan]
    return {name: round(1000 * float(np.quantile(seconds, q)), 3) for name, q in QUANTILES.items()}

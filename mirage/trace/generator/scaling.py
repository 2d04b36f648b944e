"""A model of a queue like another's, on a cluster of another size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mirage.trace.generator.model import JobClass, WorkloadModel

A_MONDAY = 1_736_121_600
"""2025-01-06 00:00 UTC."""
LARGEST_JOB = 0.25
"""Share of the cluster that one job may ask for."""


def scaled(model: WorkloadModel, name: str, *, nodes: int, days: int, load: float) -> WorkloadModel:
    """The same users' habits on ``nodes`` nodes, steadily offering ``load`` times what these can do.

    Jobs larger than a quarter of the cluster are left out; the mix of classes is that of the model's second
    half. Raises ``ValueError`` when no job would be left.
    """
    largest = max(1, int(nodes * LARGEST_JOB))
    weeks = -(-days // 7)
    classes = tuple(_steady(c, largest, weeks) for c in model.classes if _fits(c, largest))
    if not classes:
        raise ValueError(f"workload model {model.name!r} has no jobs of at most {largest} nodes")
    smaller = replace(
        model,
        name=name,
        nodes=nodes,
        classes=classes,
        arrivals=replace(model.arrivals, start=A_MONDAY, days=days, weeks=(1.0,) * weeks, batches_per_day=1.0),
        habits=replace(model.habits, most_outstanding=min(model.habits.most_outstanding, largest)),
    )
    rate = load / smaller.offered_load()
    return replace(smaller, arrivals=replace(smaller.arrivals, batches_per_day=rate))


def _fits(job_class: JobClass, largest: int) -> bool:
    return any(s.nodes <= largest for s in job_class.shapes)


def _steady(job_class: JobClass, largest: int, weeks: int) -> JobClass:
    """The class without its larger requests, with one share for all weeks."""
    shapes = tuple(s for s in job_class.shapes if s.nodes <= largest)
    kept = sum(s.weight for s in shapes) / sum(s.weight for s in job_class.shapes)
    late = job_class.shares[len(job_class.shares) // 2 :]
    return replace(job_class, shapes=shapes, shares=(float(np.mean(late)) * kept,) * weeks)

"""Counterfactual tables: exact scores of forecasts and policies without a replay; several tables as one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import ConfigError
from mirage.domain.quantileloss import pinball

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.objective import Weights
    from mirage.features.table import Table


def stacked_tables(tables: Sequence[Table]) -> Table:
    """Return all handovers, table by table, with the origin of the first table.

    Raises ``ConfigError`` for tables of other features or another number of submit times.
    """
    first = tables[0]
    for table in tables:
        if table.schema != first.schema or table.submit.shape[1:] != first.submit.shape[1:]:
            told = f"{table.schema.name}, {table.submit.shape[1]} submit times"
            wanted = f"{first.schema.name}, {first.submit.shape[1]}"
            raise ConfigError("tables", f"cannot be put together: one has {told}, another {wanted}")
    names = [f.name for f in fields(first) if isinstance(getattr(first, f.name), np.ndarray)]
    joined: dict[str, Any] = {name: np.concatenate([getattr(table, name) for table in tables]) for name in names}
    return replace(first, **joined)


Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

HOUR = 3_600
CLOSE = 0.5
"""Hours either way within which a handover counts as well timed."""


def submit_points(table: Table, wait: Float64, margin: float = 0.0) -> Int64:
    """Shape (E,): where a policy submits that decides by these waits, shape (E, G), hours.

    As the control loop does at equal times: at the first point where the successor would start no earlier than
    ``margin`` hours before the predecessor's end; at the last point at the latest.
    """
    left = (table.end[:, None] - table.submit) / HOUR
    due = wait >= left - margin
    due[:, -1] = True
    return np.asarray(np.argmax(due, axis=1), dtype=np.int64)


def policy_scores(table: Table, index: Int64, weights: Weights) -> dict[str, float]:
    """Means over the handovers of a policy that submits at these points, shape (E,). Hours and shares.

    ``regret`` is what the best points would have gained in the objective.
    """
    x = np.take_along_axis(table.x, index[:, None], axis=1)[:, 0] / HOUR
    best = table.returns_of(table.best(weights), weights)
    return {
        "absolute_x": float(np.abs(x).mean()),
        "interruption": float(np.maximum(x, 0).mean()),
        "overlap": float(np.maximum(-x, 0).mean()),
        "within_30min": float((np.abs(x) <= CLOSE).mean()),
        "objective": float(table.returns_of(index, weights).mean()),
        "regret": float((best - table.returns_of(index, weights)).mean()),
    }


def forecast_scores(table: Table, hours: Float64, levels: tuple[float, ...], weights: Weights) -> dict[str, float]:
    """Scores of quantile forecasts of the wait, shape (E, G, levels), and of the policy that decides by them.

    ``pinball`` is the mean quantile loss in hours over all levels, ``coverage_80`` the share of waits
    between the outermost of the levels 0.1 and 0.9.
    """
    wait = table.wait / HOUR
    low, decisive, high = (at_level(hours, levels, wanted) for wanted in (0.1, weights.critical_level, 0.9))
    policy = policy_scores(table, submit_points(table, decisive), weights)
    covered = float(((wait >= low) & (wait <= high)).mean())
    return policy | {"pinball": float(pinball(wait, hours, levels).mean()), "coverage_80": covered}


def at_level(hours: Float64, levels: tuple[float, ...], level: float) -> Float64:
    """Quantiles, shape (..., levels), at one level: linear between those known, constant outside them."""
    place = float(np.interp(level, levels, np.arange(len(levels))))
    low = int(place)
    high = min(low + 1, len(levels) - 1)
    return np.asarray(hours[..., low] + (place - low) * (hours[..., high] - hours[..., low]))

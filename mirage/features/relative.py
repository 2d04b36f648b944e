"""Rows of a window made comparable between clusters and loads: shares of the partition, logarithms of hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.features.summary import COLUMNS, FREED_WITHIN, percentiles

if TYPE_CHECKING:
    from mirage.domain.decision import Window
    from mirage.domain.job import Seconds

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

HOUR = 3_600

SHARES = ("idle_nodes", "allocated_nodes", "down_nodes", "running_nodes", *(f"freed_{h}h" for h in FREED_WITHIN))
"""Of the partition's nodes."""
SIZES = (*percentiles("pending_size"), *percentiles("running_size"), "pending_nodes", "eligible_nodes")
"""Logarithm of the share of the partition's nodes: a queue may ask for many times what there is."""
COUNTS = ("pending_jobs", "running_jobs", "eligible_jobs", "pending_users", "running_users")
"""Logarithms."""
TIMES = tuple(name for name in COLUMNS if name.split("_")[1] in ("limit", "age", "wait", "elapsed"))
"""Logarithms of hours."""
WORK = ("eligible_node_seconds",)
"""Logarithm of the hours that it would take the whole partition."""
PRIORITIES = percentiles("pending_priority")[1:4]
"""Of the highest priority in the queue."""
PLAIN = ("pending_largest_share", "running_largest_share")

_DIVISOR = np.where(np.isin(COLUMNS, (*TIMES, *WORK)), HOUR, 1)
_BY_TOTAL = np.isin(COLUMNS, (*SHARES, *SIZES, *WORK))
_BY_TOP = np.isin(COLUMNS, PRIORITIES)
_LOGARITHM = np.isin(COLUMNS, (*SIZES, *COUNTS, *TIMES, *WORK))
_TOTAL = COLUMNS.index("total_nodes")
_TOP = COLUMNS.index("pending_priority_p100")


def relative(rows: Float32) -> Float64:
    """Rows of ``COLUMNS`` in comparable units, shape as ``rows``; absolute priorities and totals stay."""
    values = rows.astype(np.float64)
    total, top = np.maximum(values[:, _TOTAL, None], 1), np.maximum(values[:, _TOP, None], 1)
    values /= _DIVISOR * np.where(_BY_TOTAL, total, 1) * np.where(_BY_TOP, top, 1)
    # Clocks of a cluster differ by a second or two: an age may be below zero.
    return np.where(_LOGARITHM, np.log1p(np.maximum(values, 0)), values)


def hourly(window: Window, now: Seconds, hours: int) -> Float64:
    """``relative`` rows of ``hours`` hours ago to now, shape (hours + 1, len(COLUMNS)).

    For each hour the last row known by then; before the first the oldest is repeated.
    """
    instants = now - HOUR * np.arange(hours, -1, -1)
    known = np.searchsorted(window.times, instants, side="right") - 1
    return relative(window.rows[np.maximum(known, 0)])

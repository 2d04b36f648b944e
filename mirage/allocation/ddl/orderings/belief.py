"""Run-time estimates of tasks without any information."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView

NOTHING_KNOWN_S = 3600.0
"""Run time assumed for all tasks if no run time is known: any number serves, because only ratios matter."""


def guessed(lengths: NDArray[np.float64], devices: NDArray[np.int32]) -> NDArray[np.float64]:
    """``lengths`` (s), with NaN replaced by the median of tasks with as many devices, or the overall median."""
    known = ~np.isnan(lengths)
    if known.all():
        return lengths
    filled = np.where(known, lengths, np.median(lengths[known]) if known.any() else NOTHING_KNOWN_S)
    for count in np.unique(devices[~known]):
        alike = known & (devices == count)
        if alike.any():
            filled[~known & (devices == count)] = np.median(lengths[alike])
    return np.asarray(filled, dtype=np.float64)


def remaining(view: PoolView) -> NDArray[np.float64]:
    """[T] Estimated seconds left of each task; a guess where nothing is known."""
    known = ~np.isnan(view.remaining)
    if known.all():
        return view.remaining
    return np.where(known, view.remaining, guessed(view.tasks.expected, view.tasks.devices))

"""The loss of quantile forecasts, by which members are weighted, shadows compared and methods evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray


def pinball(value: ArrayLike, quantiles: ArrayLike, levels: Sequence[float]) -> NDArray[np.float64]:
    """Loss at each level, shape (..., L), in the unit of ``value`` (Koenker & Bassett, Econometrica 46, 1978).

    ``value`` (...) and the forecast ``quantiles`` (..., L) are broadcast; ``levels`` (L,) are within 0 and 1.
    Each unit of a value above a quantile costs its level, each unit below it 1 - level. NaN remains NaN.
    """
    error, level = np.asarray(value)[..., None] - np.asarray(quantiles), np.array(levels)
    loss: NDArray[np.float64] = np.maximum(level * error, (level - 1.0) * error)
    return loss

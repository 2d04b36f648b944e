"""Statistics of a table's features: the means and spreads by which networks standardise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.plugin import Table

Float32 = NDArray[np.float32]


def moments(table: Table) -> tuple[Float32, Float32]:
    """Mean and spread of each feature, shapes (F,); a feature that never changes has the spread 1.

    Raises ``ValueError`` naming the feature where a number is not finite.
    """
    flat = table.features.reshape(-1, table.schema.size)
    mean, spread = flat.mean(axis=0, dtype=np.float64), flat.std(axis=0, dtype=np.float64)
    if not np.isfinite(spread).all():
        bad = table.schema.names[int(np.flatnonzero(~np.isfinite(spread))[0])]
        raise ValueError(f"the table's feature {bad} is not finite everywhere: build the table again")
    # Rounding leaves a constant feature a spread of its last digits.
    constant = spread <= 1e-6 * np.maximum(np.abs(mean), 1)
    return mean.astype(np.float32), np.where(constant, 1, spread).astype(np.float32)

"""Fallback policy: the first request begins on the first free unit that can run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.units import Dispatch

if TYPE_CHECKING:
    from mirage.domain.units import SystemView


def first_come(view: SystemView) -> Dispatch:
    """First come, first served. Kept short and without anything to compile or load, so that it cannot fail."""
    free = np.flatnonzero((view.running < 0) & np.isfinite(view.free_at)).tolist()
    able = ~np.isnan(view.costs.seconds[:, view.system.kind])
    rows, units = list[int](), list[int]()
    for row, model in enumerate(view.model.tolist()):
        if not free:
            break
        unit = next((unit for unit in free if able[model, unit]), None)
        if unit is not None:
            free.remove(unit)
            rows.append(row)
            units.append(unit)
    return Dispatch(np.array(rows, np.int32), np.array(units, np.int32))

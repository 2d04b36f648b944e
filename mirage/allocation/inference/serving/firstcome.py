"""What is done where a policy fails: the first that came begins on the first free unit that can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.units import Dispatch

if TYPE_CHECKING:
    from mirage.domain.units import SystemView


def first_come(view: SystemView) -> Dispatch:
    """Short enough to be right, and nothing in it has to be compiled or loaded."""
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

"""From scores and affinities to placements: the part that training and use share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.das.loops.assigning import assign
from mirage.allocation.ddl.das.loops.seeing import Crowd
from mirage.domain.pool import Placement

if TYPE_CHECKING:
    from mirage.allocation.ddl.das.sight import Sight

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

ROOM = 7
"""Column of ``PAIR``: the part of the task that has room on a machine."""


def with_room(sight: Sight, order: NDArray[np.integer], most: int) -> Int64:
    """The first ``most`` of the observation's rows ``order`` that fit somewhere now, each considered alone.

    A task that does not fit now will not fit after others have started, so none of the relevant tasks is missed.
    """
    needed = np.maximum(sight.standing.demands.devices[sight.rows[order]], 1)
    parts = np.rint(sight.pair[order, :, ROOM] * needed[:, None])
    limits = sight.standing.demands.max_nodes[sight.rows[order]]
    widest = np.where(np.arange(parts.shape[1]) < limits[:, None], -np.sort(-parts, axis=1), 0)
    alone = sight.standing.demands.devices[sight.rows[order]] == 0
    return np.asarray(order[alone | (widest.sum(axis=1) >= needed)][:most], dtype=np.int64)


class Settling:
    """Places tasks one after the other; the arrays of the observation stay unchanged."""

    def __init__(self, sight: Sight) -> None:
        self._rows = sight.rows
        machines = sight.standing.machines
        machines = machines._replace(
            free=machines.free.copy(), cpus=machines.cpus.copy(), memory_mb=machines.memory_mb.copy()
        )
        self._standing = sight.standing._replace(machines=machines)
        self._crowd = Crowd._make(part.copy() for part in sight.crowd)

    @property
    def full(self) -> bool:
        """Whether no device has room."""
        return bool(self._standing.machines.free.max(initial=0.0) <= 0.0)

    def add(
        self, chosen: NDArray[np.integer], affinity: Float64, patience: Float64, *, strict: bool = False
    ) -> tuple[Placement, ...]:
        """Places for the observation's rows ``chosen``, in this order."""
        order = self._rows[chosen].astype(np.int32)
        standing = self._standing
        ends, devices, first, self._crowd = assign(standing, self._crowd, order, affinity, patience, strict)
        found, begun = [], 0
        for task, end, node in zip(order, ends, first, strict=True):
            if node >= 0:
                taken = devices[begun:end]
                nodes = np.unique(standing.holdings.device_node[taken]) if len(taken) else np.array([node])
                found.append(Placement(int(task), taken, nodes.astype(np.int32)))
            begun = end
        return tuple(found)

"""From scores and affinities to placements: the part that training and use share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.das.loops.assigning import assign
from mirage.domain.pool import Placement

if TYPE_CHECKING:
    from mirage.allocation.ddl.das.sight import Sight

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

ROOM = 7
"""Column of ``PAIR``: which part of the task has room on a machine."""


def with_room(sight: Sight, order: NDArray[np.integer], most: int) -> Int64:
    """The first ``most`` of the rows ``order`` of the sight that fit somewhere now, were each alone to start.

    A task that does not fit now will not after others have started: so none is missed for which it matters.
    """
    needed = np.maximum(sight.standing.demands.devices[sight.rows[order]], 1)
    parts = np.rint(sight.pair[order, :, ROOM] * needed[:, None])
    limits = sight.standing.demands.max_nodes[sight.rows[order]]
    widest = np.where(np.arange(parts.shape[1]) < limits[:, None], -np.sort(-parts, axis=1), 0)
    alone = sight.standing.demands.devices[sight.rows[order]] == 0
    return np.asarray(order[alone | (widest.sum(axis=1) >= needed)][:most], dtype=np.int64)


def settle(
    sight: Sight, chosen: NDArray[np.integer], affinity: Float64, patience: Float64, *, strict: bool = False
) -> tuple[Placement, ...]:
    """Places for the rows ``chosen`` of the sight, the first come first; its arrays stay as they are."""
    standing, crowd = sight.standing, sight.crowd
    machines = standing.machines
    machines = machines._replace(
        free=machines.free.copy(), cpus=machines.cpus.copy(), memory_mb=machines.memory_mb.copy()
    )
    crowd = crowd._replace(
        size=crowd.size.copy(), task=crowd.task.copy(), row=crowd.row.copy(), own=crowd.own.copy()
    )
    order = sight.rows[chosen].astype(np.int32)
    ends, devices, first = assign(standing._replace(machines=machines), crowd, order, affinity, patience, strict)
    found, begun = [], 0
    for task, end, node in zip(order, ends, first, strict=True):
        if node >= 0:
            taken = devices[begun:end]
            nodes = np.unique(standing.holdings.device_node[taken]) if len(taken) else np.array([node])
            found.append(Placement(int(task), taken, nodes.astype(np.int32)))
        begun = end
    return tuple(found)

"""The columnar table of tasks: what runs inside an allocation, as ordering policies and placement policies see
it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.jobtable import Names

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]

ANY_KIND = np.uint64(2**64 - 1)
"""A mask of device kinds that lets all of them do."""


@dataclass(frozen=True, slots=True)
class TaskTable:
    """Tasks as columns of equal length; a task's row is its number everywhere.

    Times are seconds from the table's own zero (the engine's start, the trace's first time). NaN means not
    known or none. Needs are the whole task's: a part with k of its n devices needs k/n of its CPUs and
    memory, rounded up.
    """

    name: tuple[str, ...]
    """Unique; as the user calls it."""
    submit: Float64
    devices: Int32
    """Devices needed at the same time (a gang); 0 for a task that needs only CPUs."""
    share: Float64
    """Of each device, in (0, 1]; below 1 only where ``devices`` is 1."""
    kinds: UInt64
    """Bit k is set where a device of kind k (``Pool.kinds``) will do."""
    max_nodes: Int32
    """Over how many nodes the devices may be spread; 1 for a task that cannot be divided."""
    cpus: Int32
    memory_mb: Int64
    work: Float64
    """True seconds of running at reference speed; NaN in a real allocation, where it is unknown."""
    expected: Float64
    """Seconds of running at reference speed as estimated; NaN where nothing is known."""
    restart: Float64
    """Seconds lost at each resumption; NaN where the task has no checkpoint and is never preempted."""
    deadline: Float64
    model: Names
    """Class of the network, by which its speed is looked up; empty: unknown."""
    tenant: Names
    after: tuple[tuple[int, ...], ...] = ()
    """Rows of the tasks that must have succeeded before; empty where nothing depends on anything."""

    def __len__(self) -> int:
        return len(self.name)

    def take(self, rows: NDArray[Any]) -> Self:
        """Some of the rows, in that order. Raises ``ValueError`` where dependencies would point to nothing."""
        if any(self.after):
            raise ValueError("rows of a table with dependencies cannot be taken alone")
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        names = tuple(self.name[row] for row in np.arange(len(self))[rows])
        taken = {
            key: column.take(rows) if hasattr(column, "vocabulary") else column[rows]
            for key, column in columns.items()
            if key not in ("name", "after")
        }
        return type(self)(name=names, **taken)

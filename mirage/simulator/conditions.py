"""Dependencies of a new job as the kernel's conditions; those on jobs that have left the queue are judged here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import Dependency, DependencyKind, JobState
from mirage.simulator.kernel import operations
from mirage.simulator.kernel.layout import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.simulator.kernel.layout import World

Int64 = NDArray[np.int64]


def condition_rows(world: World, dependencies: Sequence[Dependency]) -> Int64:
    """Shape (dependencies, 5): what ``operations.submit`` wants; singletons are not among them."""
    rows = [_condition(world, dependency) for dependency in dependencies]
    return np.array(rows, dtype=np.int64).reshape(len(rows), 5)


def _condition(world: World, dependency: Dependency) -> tuple[int, int, int, int, int]:
    kind, delay = dependency.kind, dependency.delay
    slot = int(operations.find(world, dependency.job_id))
    if slot >= 0:
        return int(kind), delay, slot, 0, 0
    own = world.own[: int(world.sim["own"][0])]
    found = np.flatnonzero(own["id"] == dependency.job_id)
    if not len(found):
        return int(kind), delay, -1, 1, 0  # purged from the queue: Slurm takes the condition as met
    row = own[found[0]]
    good = row["status"] == JobState.COMPLETED and row["exit_code"] == 0
    met = {DependencyKind.AFTEROK: good, DependencyKind.AFTERNOTOK: not good}.get(kind, True)
    began = row["start"] if row["start"] != NEVER else row["end"]
    return int(kind), delay, -1, int(met), int(began) + delay if kind == DependencyKind.AFTER else 0

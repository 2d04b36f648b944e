"""A simulated cluster that starts what it is told, and says what its schedulers would start.

So the rules can be compared with a real slurmctld's from one recorded state to the next: what either side did
before does not grow into what it does later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import JobId, JobState
from mirage.simulator import tables
from mirage.simulator.kernel import engine, operations
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.job import Seconds
    from mirage.simulator.cluster import ClusterConfig


class DirectedSimulation(Simulation):
    """Jobs are submitted, changed and end as ever; they start by ``start`` alone."""

    def __init__(self, cluster: ClusterConfig, *, start: Seconds) -> None:
        """Idle at ``start``. Its partitions are down, so that no scheduler starts anything by itself."""
        closed = tuple(replace(partition, up=False) for partition in cluster.partitions)
        super().__init__(replace(cluster, partitions=closed), start=start)
        self._up = np.array([int(partition.up) for partition in cluster.partitions])

    def start(self, job_id: JobId, nodes: Iterable[str]) -> bool:
        """Start a pending job on these nodes now; False where it is not pending or they have no room for it.

        Raises ``UnknownJob``, and ``ConfigError`` for an unknown node.
        """
        state, slot = self._state, self._slot(job_id)
        if slot < 0 or state.world.jobs["status"][slot] != JobState.PENDING:
            return False
        state.make_room_for_events()
        chosen = state.model.node_words(nodes)
        return bool(operations.start_on(state.fixed, state.world, state.scratch, state.record, slot, chosen))

    def main_loop(self, *, whole_queue: bool) -> tuple[JobId, ...]:
        """What the main loop would start now; nothing changes."""
        return self._would_start(
            int(engine.ENDLESS) if whole_queue else self.cluster.scheduler.default_queue_depth
        )

    def backfill(self) -> tuple[JobId, ...]:
        """What a backfill pass would start now; nothing changes."""
        return self._would_start(operations.BACKFILL)

    def _would_start(self, depth: int) -> tuple[JobId, ...]:
        state = self._state
        fixed = state.fixed._replace(partitions=state.fixed.partitions.copy())
        fixed.partitions["up"] = self._up
        state.extend()
        work = state.work_area()
        engine.copy_world(state.world, work)
        operations.look(fixed, work, state.scratch, tables.no_record(), depth)
        before, after = (world.own["start"][: len(state.own)] for world in (state.world, work))
        return tuple(JobId(int(job)) for job in state.own["id"][before != after])

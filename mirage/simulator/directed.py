"""A simulated cluster whose schedulers run on request, and whose jobs can be started by name.

So its rules can be compared with those of a real slurmctld, whose scheduling times are not known in advance. The
comparison goes from one recorded state to the next, so that earlier differences do not grow into later ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import JobId, JobState
from mirage.simulator import tables
from mirage.simulator.kernel import engine, operations
from mirage.simulator.kernel.layout import COMPLETING_ROW, DRAIN, UP, UP_ROW
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.job import Seconds
    from mirage.simulator.cluster import ClusterConfig
    from mirage.simulator.kernel.layout import Fixed, Record, World


class DirectedSimulation(Simulation):
    """Jobs are submitted, changed and end as ever; they start by ``start`` and ``look`` alone."""

    def __init__(self, cluster: ClusterConfig, *, start: Seconds, log: bool = False) -> None:
        """Idle at ``start``. Its partitions are down, so that no scheduler starts anything by itself."""
        closed = tuple(replace(partition, up=False) for partition in cluster.partitions)
        super().__init__(replace(cluster, partitions=closed), start=start, log=log)
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

    def look(self, kind: str, completing: Iterable[str] = ()) -> None:
        """One pass now: ``main`` (the main loop), ``full`` (over the whole queue), ``backfill``.

        No job starts on nodes that are ``completing``: their last one has ended, and has not left them.
        """
        self._state.make_room_for_events()
        self._pass(self._state.world, self._state.record, kind, completing)

    def would_start(self, kind: str, completing: Iterable[str] = ()) -> tuple[JobId, ...]:
        """The jobs that ``look`` would start; nothing changes."""
        state = self._state
        state.extend()
        work = state.work_area()
        engine.copy_world(state.world, work)
        self._pass(work, tables.no_record(), kind, completing)
        before, after = (world.own["start"][: len(state.own)] for world in (state.world, work))
        return tuple(JobId(int(job)) for job in state.own["id"][before != after])

    def _pass(self, world: World, record: Record, kind: str, completing: Iterable[str]) -> None:
        fixed, scratch = self._open(), self._state.scratch
        nodes = self._state.model.node_words(completing) & world.bits[UP_ROW]
        if kind == "backfill":
            world.bits[COMPLETING_ROW] = nodes
            operations.look(fixed, world, scratch, record, operations.BACKFILL)
            world.bits[COMPLETING_ROW] = 0
            return
        depth = int(engine.ENDLESS) if kind == "full" else self.cluster.scheduler.default_queue_depth
        engine.set_node_states(fixed, world, scratch, record, nodes, DRAIN)
        operations.look(fixed, world, scratch, record, depth)
        engine.set_node_states(fixed, world, scratch, record, nodes, UP)

    def _open(self) -> Fixed:
        """The constant tables, but with the present state of the partitions."""
        fixed = self._state.fixed._replace(partitions=self._state.fixed.partitions.copy())
        fixed.partitions["up"] = self._up
        return fixed

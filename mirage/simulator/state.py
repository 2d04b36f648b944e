"""The state of a simulation: the kernel's tables, the names behind their numbers, and room to grow."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.simulator import tables
from mirage.simulator.kernel.layout import Fixed, Scratch, World
from mirage.simulator.model import Model

if TYPE_CHECKING:
    from mirage.simulator.arrivals import Arrivals
    from mirage.simulator.cluster import ClusterConfig
    from mirage.simulator.kernel.layout import Record
    from mirage.simulator.registry import Registry

Int64 = NDArray[np.int64]
Table = NDArray[np.void]


class State:
    """The tables that the kernel works on. A full table is replaced by a larger one: keep no reference to it."""

    def __init__(self, model: Model, registry: Registry, arrivals: Arrivals, begin: int, record: Record) -> None:
        """An idle cluster at ``begin``; what happens is written down in ``record``."""
        self.model = model
        self.registry = registry
        self.fixed = self._new_fixed(arrivals.jobs, arrivals.needs)
        self.world = tables.new_world(model, registry.accounts, self.fixed, begin)
        self.record = record
        self.scratch = self._new_scratch()
        self._work: World | None = None

    def _new_fixed(self, jobs: Table, needs: Int64) -> Fixed:
        model = self.model
        return Fixed(
            config=self._new_config(),
            arrivals=jobs,
            arrival_needs=needs,
            capacity=model.capacity,
            partitions=model.partition_table(),
            reservations=model.reservation_table(model.cluster.reservations, model.first_reservation_mask),
            timeline=model.timeline(),
            masks=model.masks,
            feature_mask=np.arange(len(model.features), dtype=np.int64) + len(model.cluster.partitions),
        )

    def _new_config(self) -> Table:
        r = self.registry
        return self.model.config_table(len(r.users), r.arrays, r.users_in_tree)

    def _new_scratch(self, slots: int = 0) -> Scratch:
        registry, slots = self.registry, max(slots, len(self.world.jobs))
        return tables.new_scratch(self.model, self.world, registry.arrays, len(registry.users), slots)

    def copy(self, *, results: bool) -> State:
        """An independent state that is equal; without ``results`` the trace's are forgotten."""
        twin = copy(self)
        twin.world = tables.copied(self.world)
        twin.registry = self.registry.copy()
        kept = self.record.results.copy() if results else self.record.results[:0]
        twin.record = self.record._replace(results=kept, log=self.record.log.copy())
        twin.scratch, twin._work = twin._new_scratch(), None
        return twin

    @property
    def now(self) -> int:
        """The simulated clock, in seconds."""
        return int(self.world.sim["now"][0])

    @property
    def own(self) -> Table:
        """The jobs submitted from outside."""
        return self.world.own[: int(self.world.sim["own"][0])]

    def reconfigure(self, cluster: ClusterConfig) -> None:
        """From now on these reservations; all else must be as it was."""
        self.model = Model(cluster)
        fixed = self._new_fixed(self.fixed.arrivals, self.fixed.arrival_needs)
        self.fixed = fixed._replace(timeline=fixed.timeline[fixed.timeline["time"] > self.now])
        self.world.sim["next_timeline"] = 0

    # Room

    def grow(self) -> None:
        """Make room for at least what the next time may bring."""
        coming = self.fixed.arrivals["submit"][int(self.world.sim["next_arrival"][0]) :]
        arriving = int(np.searchsorted(coming, self.now, side="right"))
        self.make_room(2 * len(self.world.jobs) + arriving)
        if len(self.record.log):
            lines = 2 * len(self.record.log) + 8 * len(self.world.jobs)
            self.record = self.record._replace(log=tables.grown(self.record.log, lines))

    def make_room(self, slots: int) -> None:
        """Make room for ``slots`` jobs in the queue."""
        self.world = tables.with_room(self.world, slots)
        self._fit_scratch(len(self.world.jobs))

    def make_room_for_events(self) -> None:
        """For events that a change from outside puts on the agenda."""
        self.make_room(int(self.world.sim["agenda"][0]) // 8 + 64)

    def make_room_for_submission(self, dependencies: int) -> None:
        """Make room for one more job from outside that has this number of ``dependencies``."""
        self.extend()
        sim = self.world.sim[0]
        own, deps = int(sim["own"]), int(sim["deps"])
        self.make_room(int(sim["slots"] + sim["agenda"] // 8) + 64)
        self.world = tables.with_own_room(self.world, own + 2)._replace(
            deps=tables.grown(self.world.deps, deps + dependencies + 2)
        )

    def make_room_for_candidate(self) -> None:
        """For a job that is only tried out."""
        self.extend()
        self.make_room(int(self.world.sim["slots"][0]) + 64)
        self.world = tables.with_own_room(self.world, len(self.own) + 2)

    def _fit_scratch(self, slots: int) -> None:
        if len(self.scratch.order) < slots:
            self.scratch = self._new_scratch(slots)

    def extend(self) -> None:
        """Add rows for users, arrays and limits that the registry has learned since the tables were made."""
        world, accounts = self.world, self.registry.accounts
        if len(accounts.groups) > len(world.groups):
            new = accounts.group_rows(len(world.groups))
            world = world._replace(groups=np.concatenate([world.groups, new]))
        if len(accounts.rows) > len(world.associations):
            tree = accounts.tree_rows(self.now)
            for name in ("usage", "rate", "at", "factor"):
                tree[name][: len(world.associations)] = world.associations[name]
            world = world._replace(associations=tree)
        self.world = world
        registry, config = self.registry, self.fixed.config
        if config["users"][0] < len(registry.users) or len(self.scratch.counts) <= (
            len(self.model.cluster.partitions) + len(registry.users) + registry.arrays
        ):
            self.fixed = self.fixed._replace(config=self._new_config())
            self.scratch = self._new_scratch(len(self.scratch.order))

    def work_area(self) -> World:
        """A world to run copies in, with room to grow and no history of waits; kept for the next time."""
        work, world = self._work, self.world
        sizes = zip(work or (), world, strict=False)
        if work is None or any(len(a) < len(b) for a, b in sizes if b is not world.waits):
            roomy = tables.with_room(tables.copied(world), len(world.jobs) + 512)
            self._fit_scratch(len(roomy.jobs))
            self._work = work = tables.with_own_room(roomy, 2 * len(world.own))._replace(waits=world.waits[:0])
        return work

"""The state of a simulation: the kernel's changing tables, the names behind their numbers, and room to grow."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.simulator.encode import blank_rows
from mirage.simulator.kernel.layout import (
    AGENDA,
    ALLOC,
    DEP,
    FREE,
    HIGHEST_IN_TURN,
    IDLE_ROW,
    LOG,
    MUST_ROW,
    NEVER,
    NODE_DOWN,
    OWN,
    RELEASE,
    RESULT,
    SIM,
    SLOT_TIME,
    UP_ROW,
    WAIT,
    ControllerState,
    Fixed,
    KernelRecord,
    Scratch,
)
from mirage.simulator.model import ClusterTables

if TYPE_CHECKING:
    from mirage.simulator.accounts import Accounts
    from mirage.simulator.arrivals import Arrivals
    from mirage.simulator.cluster import ClusterConfig
    from mirage.simulator.registry import Registry

Array = NDArray[Any]
RECENT_WAITS = 4096
FIRST_SLOTS = 256
FIRST_OWN = 16


def new_world(model: ClusterTables, accounts: Accounts, fixed: Fixed, start: int) -> ControllerState:
    """Return the state of a cluster without jobs at time ``start``."""
    nodes, resources = len(model.node_names), len(model.resources)
    free = np.zeros((nodes, resources + 2), dtype=np.int64)
    free[:, :resources] = model.capacity[:, :resources]
    down = np.array([group.down for group in model.cluster.nodes for _ in group.names], dtype=bool)
    free[down, resources + 1] = NODE_DOWN
    bits = np.zeros((_sets(FIRST_OWN), model.word_count), dtype=np.uint64)
    bits[UP_ROW] = bits[IDLE_ROW] = model.words(~down)
    sim = np.zeros(1, dtype=SIM)
    sim["now"], sim["next_id"] = start, fixed.arrivals["id"].max(initial=0) + 1
    for name in ("free_slot", "free_alloc", "free_dep", "watch", "calculated"):
        sim[name] = -1
    for name in ("main_due", "full_due", "backfill_due", "review_due", "cap_time"):
        sim[name] = NEVER
    sim["last_main"] = sim["last_backfill"] = start - 1_000_000_000
    sim["idle"], sim["lowest"] = int((~down).sum()), HIGHEST_IN_TURN
    return ControllerState(
        sim=sim,
        jobs=blank_rows(FIRST_SLOTS),
        needs=np.zeros((FIRST_SLOTS, fixed.arrival_needs.shape[1]), dtype=np.int64),
        agenda=np.zeros(8 * FIRST_SLOTS, dtype=AGENDA),
        pending=np.zeros(FIRST_SLOTS, dtype=np.int64),
        running=np.zeros(FIRST_SLOTS, dtype=np.int64),
        allocs=np.zeros(most_allocations(model), dtype=ALLOC),
        deps=np.zeros(16, dtype=DEP),
        free=free,
        bits=bits,
        groups=accounts.group_rows(),
        associations=accounts.tree_rows(start),
        own=np.zeros(FIRST_OWN, dtype=OWN),
        waits=np.zeros(RECENT_WAITS, dtype=WAIT),
    )


def most_allocations(model: ClusterTables) -> int:
    """The most (job, node) pairs that can exist: one a node, or one a CPU where nodes are shared."""
    return len(model.node_names) if model.whole_nodes else int(np.maximum(model.capacity[:, 0], 1).sum())


def new_scratch(model: ClusterTables, world: ControllerState, arrays: int, users: int, slots: int) -> Scratch:
    """Working memory for one thread, enough for worlds of up to ``slots`` job slots."""
    running = min(slots, most_allocations(model)) + 1
    tests = min(model.cluster.scheduler.bf_max_job_test, 100_000)
    parts = 2 * tests + 4
    return Scratch(
        times=np.zeros(parts, dtype=SLOT_TIME),
        space=np.zeros((parts, model.word_count), dtype=np.uint64),
        bits=np.zeros((4, model.word_count), dtype=np.uint64),
        release=np.zeros(running, dtype=RELEASE),
        held=np.zeros((running, model.word_count), dtype=np.uint64),
        free=np.zeros((len(model.node_names), len(model.resources) + 1), dtype=np.int64),
        order=np.zeros(slots, dtype=np.int64),
        failed=np.zeros(64, dtype=np.int64),
        counts=np.zeros(len(model.cluster.partitions) + users + arrays + 1, dtype=np.int64),
        stack=np.zeros(len(world.associations) + 1, dtype=np.int64),
    )


def new_record(rows: int, log: bool) -> KernelRecord:
    """Where results of ``rows`` trace rows go, and the event log if ``log``."""
    results = np.zeros(rows, dtype=RESULT)
    results["start"] = results["end"] = NEVER
    return KernelRecord(results=results, log=np.zeros(1024 if log else 0, dtype=LOG))


def no_record() -> KernelRecord:
    """Return an empty record, for runs of which only the separately tracked jobs are read."""
    return new_record(0, log=False)


def grown(table: Array, rows: int) -> Array:
    """A table with at least ``rows`` rows and the same beginning."""
    if len(table) >= rows:
        return table
    larger = np.zeros((max(rows, 2 * len(table)), *table.shape[1:]), dtype=table.dtype)
    larger[: len(table)] = table
    return larger


def with_room(world: ControllerState, slots: int) -> ControllerState:
    """A world whose tables hold ``slots`` jobs and the events that they may cause."""
    if len(world.jobs) >= slots and len(world.agenda) >= 8 * slots:
        return world
    jobs = grown(world.jobs, slots)
    jobs["generation"][len(world.jobs) :] = 0
    jobs["status"][len(world.jobs) :] = FREE
    jobs["first_waiter"][len(world.jobs) :] = -1
    size = len(jobs)
    return world._replace(
        jobs=jobs,
        needs=grown(world.needs, size),
        agenda=grown(world.agenda, 8 * size),
        pending=grown(world.pending, size),
        running=grown(world.running, size),
    )


def with_own_room(world: ControllerState, own: int) -> ControllerState:
    """A world whose tables hold ``own`` jobs submitted from outside."""
    if len(world.own) >= own:
        return world
    larger = grown(world.own, own)
    return world._replace(own=larger, bits=grown(world.bits, _sets(len(larger))))


def _sets(own: int) -> int:
    """Rows of ``ControllerState.bits`` for ``own`` jobs that are not of the trace."""
    return MUST_ROW + 2 * own


def copied(world: ControllerState) -> ControllerState:
    """An independent copy, the same size."""
    return ControllerState(*(_copied(table) for table in world))


def _copied(table: Array) -> Array:
    """A copy made as bytes: numpy copies records field by field, ten times slower."""
    return table.view(np.uint8).copy().view(table.dtype) if table.dtype.names else table.copy()


Int64 = NDArray[np.int64]
Table = NDArray[np.void]


class State:
    """The tables that the kernel works on. A full table is replaced by a larger one: keep no reference to it."""

    def __init__(
        self, model: ClusterTables, registry: Registry, arrivals: Arrivals, begin: int, record: KernelRecord
    ) -> None:
        """An idle cluster at ``begin``; what happens is written down in ``record``."""
        self.model = model
        self.registry = registry
        self.fixed = self._new_fixed(arrivals.jobs, arrivals.needs)
        self.world = new_world(model, registry.accounts, self.fixed, begin)
        self.record = record
        self.scratch = self._new_scratch()
        self._work: ControllerState | None = None

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
        return new_scratch(self.model, self.world, registry.arrays, len(registry.users), slots)

    def copy(self, *, results: bool) -> State:
        """An independent state that is equal; without ``results`` the trace's are forgotten."""
        twin = copy(self)
        twin.world = copied(self.world)
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
        self.model = ClusterTables(cluster)
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
            self.record = self.record._replace(log=grown(self.record.log, lines))

    def make_room(self, slots: int) -> None:
        """Make room for ``slots`` jobs in the queue."""
        self.world = with_room(self.world, slots)
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
        self.world = with_own_room(self.world, own + 2)._replace(
            deps=grown(self.world.deps, deps + dependencies + 2)
        )

    def make_room_for_candidate(self) -> None:
        """For a job that is only tried out."""
        self.extend()
        self.make_room(int(self.world.sim["slots"][0]) + 64)
        self.world = with_own_room(self.world, len(self.own) + 2)

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

    def work_area(self) -> ControllerState:
        """A world to run copies in, with room to grow and no history of waits; kept for the next time."""
        work, world = self._work, self.world
        sizes = zip(work or (), world, strict=False)
        if work is None or any(len(a) < len(b) for a, b in sizes if b is not world.waits):
            roomy = with_room(copied(world), len(world.jobs) + 512)
            self._fit_scratch(len(roomy.jobs))
            self._work = work = with_own_room(roomy, 2 * len(world.own))._replace(waits=world.waits[:0])
        return work

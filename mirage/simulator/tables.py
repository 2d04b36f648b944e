"""Allocation, growth and copying of the kernel's changing tables."""

from __future__ import annotations

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
    Fixed,
    Record,
    Scratch,
    World,
)

if TYPE_CHECKING:
    from mirage.simulator.accounts import Accounts
    from mirage.simulator.model import Model

Table = NDArray[Any]
RECENT_WAITS = 4096
FIRST_SLOTS = 256
FIRST_OWN = 16


def new_world(model: Model, accounts: Accounts, fixed: Fixed, start: int) -> World:
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
    return World(
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


def most_allocations(model: Model) -> int:
    """The most (job, node) pairs that can exist: one a node, or one a CPU where nodes are shared."""
    return len(model.node_names) if model.whole_nodes else int(np.maximum(model.capacity[:, 0], 1).sum())


def new_scratch(model: Model, world: World, arrays: int, users: int, slots: int) -> Scratch:
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


def new_record(rows: int, log: bool) -> Record:
    """Where results of ``rows`` trace rows go, and the event log if ``log``."""
    results = np.zeros(rows, dtype=RESULT)
    results["start"] = results["end"] = NEVER
    return Record(results=results, log=np.zeros(1024 if log else 0, dtype=LOG))


def no_record() -> Record:
    """Return an empty record, for runs of which only the separately tracked jobs are read."""
    return new_record(0, log=False)


def grown(table: Table, rows: int) -> Table:
    """A table with at least ``rows`` rows and the same beginning."""
    if len(table) >= rows:
        return table
    larger = np.zeros((max(rows, 2 * len(table)), *table.shape[1:]), dtype=table.dtype)
    larger[: len(table)] = table
    return larger


def with_room(world: World, slots: int) -> World:
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


def with_own_room(world: World, own: int) -> World:
    """A world whose tables hold ``own`` jobs submitted from outside."""
    if len(world.own) >= own:
        return world
    larger = grown(world.own, own)
    return world._replace(own=larger, bits=grown(world.bits, _sets(len(larger))))


def _sets(own: int) -> int:
    """Rows of ``World.bits`` for ``own`` jobs that are not of the trace."""
    return MUST_ROW + 2 * own


def copied(world: World) -> World:
    """An independent copy, the same size."""
    return World(*(_copied(table) for table in world))


def _copied(table: Table) -> Table:
    """A copy made as bytes: numpy copies records field by field, ten times slower."""
    return table.view(np.uint8).copy().view(table.dtype) if table.dtype.names else table.copy()

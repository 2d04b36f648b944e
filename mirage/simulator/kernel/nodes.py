"""Nodes: which could run a job, which are taken, what a job holds and gives back."""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel import bitsets
from mirage.simulator.kernel.compile import compiled, inlined
from mirage.simulator.kernel.layout import (
    DRAIN,
    IDLE_ROW,
    MUST_ROW,
    NODE_DOWN,
    SINCE_23_11,
    SINCE_26_05,
    UP,
    UP_ROW,
    ControllerState,
    Fixed,
)


@inlined
def candidates(fixed: Fixed, world: ControllerState, slot: int, nodes: np.ndarray) -> None:
    """Set ``nodes`` to those that are up, in the job's partition, and have the features it needs.

    A job whose list names as many nodes as it needs can have no others.
    """
    job = world.jobs[slot]
    mask, up = fixed.masks[fixed.partitions[job.partition].mask], world.bits[UP_ROW]
    for k in range(nodes.shape[0]):
        nodes[k] = mask[k] & up[k]
    features = job.features
    f = 0
    while features != bitsets.ZERO:
        if features & bitsets.ONE != bitsets.ZERO:
            mask = fixed.masks[fixed.feature_mask[f]]
            for k in range(nodes.shape[0]):
                nodes[k] &= mask[k]
        features >>= bitsets.ONE
        f += 1
    if job.listed == job.nodes:
        must = world.bits[MUST_ROW + 2 * job.own]
        for k in range(nodes.shape[0]):
            nodes[k] &= must[k]


@inlined
def lacks(world: ControllerState, slot: int, nodes: np.ndarray) -> bool:
    """Whether a node that the job must have is not among ``nodes``."""
    job = world.jobs[slot]
    if job.listed == 0:
        return False
    must = world.bits[MUST_ROW + 2 * job.own]
    for k in range(nodes.shape[0]):
        if must[k] & ~nodes[k] != bitsets.ZERO:
            return True
    return False


@inlined
def apply_reservations(fixed: Fixed, world: ControllerState, slot: int, start: int, nodes: np.ndarray) -> int:
    """Leave only nodes that advance reservations allow from ``start`` for the job's limit.

    Returns the earliest end of a reservation in the way (when more nodes could become usable), or the
    start of the job's own reservation if that is still to come; 0 if there is none.
    """
    job, later = world.jobs[slot], 0
    end = start + job.limit
    for r in range(fixed.config[0].reservations):
        reservation = fixed.reservations[r]
        mask = fixed.masks[reservation.mask]
        if r == job.reservation:
            if start < reservation.start:
                nodes[:] = bitsets.ZERO
                later = reservation.start
            elif end > reservation.end:
                nodes[:] = bitsets.ZERO
            else:
                for k in range(nodes.shape[0]):
                    nodes[k] &= mask[k]
        elif reservation.start < end and reservation.end > start:
            for k in range(nodes.shape[0]):
                nodes[k] &= ~mask[k]
            if later == 0 or reservation.end < later:
                later = reservation.end
    return later


@inlined
def _fits(world: ControllerState, slot: int, node: int, resources: int) -> bool:
    for r in range(resources):
        if world.free[node, r] < world.needs[slot, r]:
            return False
    return True


@inlined
def keep_fitting(fixed: Fixed, world: ControllerState, slot: int, nodes: np.ndarray) -> int:
    """Leave only nodes with room for the job now; returns how many, 0 when one that it must have is missing."""
    resources, exclusive = fixed.config[0].resources, world.jobs[slot].exclusive == 1
    idle = world.bits[IDLE_ROW]
    if exclusive:
        for k in range(nodes.shape[0]):
            nodes[k] &= idle[k]
    if exclusive and fixed.config[0].whole_nodes == 1:
        return 0 if lacks(world, slot, nodes) else bitsets.count(nodes)
    total = 0
    node = bitsets.next_member(nodes, 0)
    while node >= 0:
        if _fits(world, slot, node, resources):
            total += 1
        else:
            bitsets.discard(nodes, node)
        node = bitsets.next_member(nodes, node + 1)
    return 0 if lacks(world, slot, nodes) else total


@inlined
def _take(
    fixed: Fixed,
    world: ControllerState,
    slot: int,
    free: np.ndarray,
    row: np.ndarray,
    wanted: int,
    taken: np.ndarray,
) -> int:
    """Move up to ``wanted`` members from ``row`` to ``taken``, best-fitting runs first; returns how many.

    cons_tres measures runs by the CPUs that the job could have there. Nodes count alike where they are taken
    whole, and where it leaves no more CPUs on a node than are asked for: for a job with GRES, and since 23.11 for
    any that says how many tasks a node gets, as is meant by CPUs of a node. Since 26.05 a job of one node gets the
    first.
    """
    config = fixed.config[0]
    if config.release >= SINCE_26_05 and world.jobs[slot].nodes == 1:
        return bitsets.take_first(row, wanted, taken)
    if config.whole_nodes == 1 or config.release >= SINCE_23_11 or _wants_gres(fixed, world, slot):
        return bitsets.take_best_fit(row, wanted, taken)
    return _take_by_cpus(free, row, wanted, taken)


@inlined
def _wants_gres(fixed: Fixed, world: ControllerState, slot: int) -> bool:
    for r in range(fixed.config[0].first_gres, fixed.config[0].resources):
        if world.needs[slot, r] > 0:
            return True
    return False


@inlined
def _take_by_cpus(free: np.ndarray, row: np.ndarray, wanted: int, taken: np.ndarray) -> int:
    """As cons_tres does: the run of consecutive nodes with the fewest free CPUs that is long enough, else that
    with the most; for the last node the one with the fewest free CPUs, else the first ones of the run.
    """
    left = wanted
    while left > 0:
        first, end = _tightest_run(free, row, left)
        if first < 0:
            break
        if left == 1:
            first = _fullest(free, first, end)
        for node in range(first, min(first + left, end)):
            bitsets.discard(row, node)
            bitsets.add(taken, node)
        left -= min(left, end - first)
    return wanted - left


@inlined
def _tightest_run(free: np.ndarray, row: np.ndarray, wanted: int) -> tuple[int, int]:
    """The run of consecutive members to take from next: its first member and the first number behind it."""
    best, best_end, best_cpus, enough = np.int64(-1), np.int64(-1), np.int64(0), False
    start = bitsets.next_member(row, 0)
    while start >= 0:
        end = bitsets.next_gap(row, start)
        cpus = np.int64(0)
        for node in range(start, end):
            cpus += free[node, 0]
        sufficient = end - start >= wanted
        if (
            best < 0
            or (sufficient and not enough)
            or (sufficient and cpus < best_cpus)
            or (not sufficient and cpus > best_cpus)
        ):
            best, best_end, best_cpus, enough = start, end, cpus, sufficient
        start = bitsets.next_member(row, end)
    return best, best_end


@inlined
def _fullest(free: np.ndarray, first: int, end: int) -> int:
    """The node of a run with the fewest free CPUs, the lowest-numbered among equals."""
    best = first
    for node in range(first + 1, end):
        if free[node, 0] < free[best, 0]:
            best = node
    return best


@compiled
def choose(
    fixed: Fixed,
    world: ControllerState,
    slot: int,
    nodes: np.ndarray,
    free: np.ndarray,
    chosen: np.ndarray,
    work: np.ndarray,
) -> None:
    """Pick as many of ``nodes`` as the job needs: those it must have, which are taken out of ``nodes``, then
    those of lower weight, then by best fit on consecutive nodes. ``free``: resources by node when the job starts.
    """
    job = world.jobs[slot]
    wanted = job.nodes - job.listed
    chosen[:] = bitsets.ZERO
    if job.listed > 0:
        must = world.bits[MUST_ROW + 2 * job.own]
        for k in range(nodes.shape[0]):
            chosen[k] = must[k]
            nodes[k] &= ~must[k]
    if fixed.config[0].uniform_weight == 1:
        bitsets.assign(work, nodes)
        _take(fixed, world, slot, free, work, wanted, chosen)
        return
    weight_column = fixed.config[0].resources
    left, above = wanted, np.int64(-1)
    while left > 0:
        lowest = np.int64(1) << 62
        node = bitsets.next_member(nodes, 0)
        while node >= 0:
            weight = fixed.capacity[node, weight_column]
            if above < weight < lowest:
                lowest = weight
            node = bitsets.next_member(nodes, node + 1)
        if lowest == np.int64(1) << 62:
            return
        work[:] = bitsets.ZERO
        node = bitsets.next_member(nodes, 0)
        while node >= 0:
            if fixed.capacity[node, weight_column] == lowest:
                bitsets.add(work, node)
            node = bitsets.next_member(nodes, node + 1)
        left -= _take(fixed, world, slot, free, work, left, chosen)
        above = lowest


@inlined
def _has_room(fixed: Fixed, world: ControllerState, node: int) -> bool:
    """Whether any job could start on the node, as far as CPUs (resource 0) tell."""
    jobs, state = world.free[node, fixed.config[0].resources], world.free[node, fixed.config[0].resources + 1]
    if state != UP:
        return False
    return jobs == 0 if fixed.config[0].whole_nodes == 1 else world.free[node, 0] > 0


@inlined
def _mark(fixed: Fixed, world: ControllerState, node: int, had_room: bool) -> None:
    """Keep the idle set and the count of nodes with room in step after a change of one node."""
    resources = fixed.config[0].resources
    if world.free[node, resources] == 0 and world.free[node, resources + 1] == UP:
        bitsets.add(world.bits[IDLE_ROW], node)
    else:
        bitsets.discard(world.bits[IDLE_ROW], node)
    world.sim[0].idle += np.int64(_has_room(fixed, world, node)) - np.int64(had_room)


@compiled
def allocate(fixed: Fixed, world: ControllerState, slot: int, nodes: np.ndarray) -> None:
    """Give the job its share of each node in ``nodes`` (all of it where it is exclusive)."""
    sim, job, resources = world.sim[0], world.jobs[slot], fixed.config[0].resources
    job.first_alloc = -1
    node = bitsets.next_member(nodes, 0)
    while node >= 0:
        a = sim.free_alloc
        if a >= 0:
            sim.free_alloc = world.allocs[a].next_of_job
        else:
            a = sim.allocs
            sim.allocs += 1
        entry = world.allocs[a]
        entry.node, entry.slot, entry.next_of_job = node, slot, job.first_alloc
        job.first_alloc = a
        room = _has_room(fixed, world, node)
        for r in range(resources):
            world.free[node, r] -= fixed.capacity[node, r] if job.exclusive == 1 else world.needs[slot, r]
        world.free[node, resources] += 1
        _mark(fixed, world, node, room)
        node = bitsets.next_member(nodes, node + 1)


@compiled
def release(fixed: Fixed, world: ControllerState, slot: int) -> None:
    """Take back all that the job holds."""
    sim, job, resources = world.sim[0], world.jobs[slot], fixed.config[0].resources
    a = job.first_alloc
    while a >= 0:
        entry = world.allocs[a]
        node, following = entry.node, entry.next_of_job
        room = _has_room(fixed, world, node)
        for r in range(resources):
            world.free[node, r] += fixed.capacity[node, r] if job.exclusive == 1 else world.needs[slot, r]
        world.free[node, resources] -= 1
        _mark(fixed, world, node, room)
        entry.slot, entry.next_of_job = -1, sim.free_alloc
        sim.free_alloc = a
        a = following
    job.first_alloc = -1


@compiled
def set_state(fixed: Fixed, world: ControllerState, node: int, state: int) -> None:
    """Change a node's state; jobs on it are the caller's business."""
    room = _has_room(fixed, world, node)
    world.free[node, fixed.config[0].resources + 1] = state
    if state == UP:
        bitsets.add(world.bits[UP_ROW], node)
    elif state in (DRAIN, NODE_DOWN):
        bitsets.discard(world.bits[UP_ROW], node)
    _mark(fixed, world, node, room)

"""One pass over the tasks in the order of DAS: each to the machines that are worth most to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.kernel.compile import compiled_with_arrays
from mirage.allocation.ddl.kernel.das_seeing import TINY, Crowd, free_on, part_of, room_on, utility_on

if TYPE_CHECKING:
    from mirage.allocation.ddl.kernel.das_seeing import PoolInstant

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]

WIDEST = 16
"""Over more nodes than this a task is spread only where it fits no other way."""
SPREAD = 0.3
"""What it costs to be spread over more nodes than the task needs: it will meet neighbours that nobody sees yet."""
LOOSE = 0.02
"""What it costs to take a node that is all free next to the task: of equals the tightest is taken (best-fit)."""


@compiled_with_arrays
def assign(
    standing: PoolInstant, crowd: Crowd, order: Int32, affinity: Float64, patience: Float64, strict: bool
) -> tuple[Int32, Int32, Int32, Crowd]:
    """Places for the tasks ``order``: ends [J] of each one's devices, the devices, the first nodes [J], the crowd.

    The node is -1 for those that are left; a task of CPUs alone has a node and no devices.

    ``affinity`` [J, N] is added to the utility of a placement, in the mean over its nodes. A task whose best
    placement is worth less than ``patience`` [J] is left, unless nothing runs. What is free is changed, and the
    crowd: only the one given back is to be used on.
    """
    demands = standing.demands
    ends = np.zeros(len(order), np.int32)
    first = np.full(len(order), -1, np.int32)
    devices = np.empty(max(demands.devices[order].sum(), 1), np.int32)
    used, running = 0, len(standing.holdings.running) + crowd.size.sum()
    for place in range(len(order)):
        task = order[place]
        if demands.devices[task] > 0:
            nodes, worth = _best(standing, crowd, task, affinity[place])
            if len(nodes) and (running == 0 or worth >= patience[place]):
                crowd = _settle(standing, crowd, task, nodes)
                used = _take(standing, task, nodes, devices, used)
                first[place] = nodes[0]
                running += 1
        else:
            first[place] = _lodge(standing, task)
        ends[place] = used
        if strict and first[place] < 0:
            ends[place:] = used
            break
    return ends, devices[:used], first, crowd


@compiled_with_arrays
def _lodge(standing: PoolInstant, task: int) -> int:
    """A node for a task of CPUs alone, the one with most of them free; -1 where it does not fit."""
    demands, machines = standing.demands, standing.machines
    node = int(np.argmax(np.where(machines.memory_mb >= demands.memory_mb[task], machines.cpus, -1)))
    if machines.memory_mb[node] < demands.memory_mb[task] or machines.cpus[node] < demands.cpus[task]:
        return -1
    machines.cpus[node] -= demands.cpus[task]
    machines.memory_mb[node] -= demands.memory_mb[task]
    return node


@compiled_with_arrays
def _best(standing: PoolInstant, crowd: Crowd, task: int, affinity: Float64) -> tuple[Int32, float]:
    """The nodes that are worth most, and their worth; no nodes where the task does not fit."""
    demands, machines = standing.demands, standing.machines
    count = len(machines.first_device) - 1
    need = demands.devices[task]
    room = np.empty(count, np.int32)
    for node in range(count):
        room[node] = room_on(standing, task, node)
    best, chosen = -np.inf, np.empty(0, np.int32)
    widest = min(need, demands.max_nodes[task], count, WIDEST)
    for wide in range(1, widest + 1):
        if need % wide and wide * 2 < need:
            continue
        nodes = _worthiest(standing, crowd, task, affinity, room, wide)
        if len(nodes):
            found = _worth(standing, crowd, task, nodes, affinity)
            if found > best + TINY:
                best, chosen = found, nodes
    if not len(chosen):
        chosen = _fullest(room, need, min(demands.max_nodes[task], count))
        if len(chosen):
            best = _worth(standing, crowd, task, chosen, affinity)
    return chosen, best


@compiled_with_arrays
def _worth(standing: PoolInstant, crowd: Crowd, task: int, nodes: Int32, affinity: Float64) -> float:
    kind = standing.machines.device_kind[standing.machines.first_device[nodes[0]]]
    worth = utility_on(standing, crowd, task, nodes, kind, len(nodes))[2] + affinity[nodes].mean()
    if len(nodes) > _fewest(standing, task):
        worth -= SPREAD
    return worth


@compiled_with_arrays
def _fewest(standing: PoolInstant, task: int) -> int:
    """On how many nodes the task would be if nothing ran."""
    first_device = standing.machines.first_device
    most = max((first_device[1:] - first_device[:-1]).max(), 1)
    return (standing.demands.devices[task] + most - 1) // most


@compiled_with_arrays
def _worthiest(standing: PoolInstant, crowd: Crowd, task: int, affinity: Float64, room: Int32, wide: int) -> Int32:
    """Of the nodes with room for an even part, the ``wide`` that are worth most each by itself, ascending."""
    machines = standing.machines
    each = (standing.demands.devices[task] + wide - 1) // wide
    open_to = np.flatnonzero(room >= each)
    if len(open_to) < wide:
        return np.empty(0, np.int32)
    single, worth = np.empty(1, np.int32), np.empty(len(open_to))
    for place in range(len(open_to)):
        node = open_to[place]
        single[0] = node
        kind = machines.device_kind[machines.first_device[node]]
        loose = (
            LOOSE
            * (free_on(standing, node) - each)
            / (machines.first_device[node + 1] - machines.first_device[node])
        )
        worth[place] = loose - utility_on(standing, crowd, task, single, kind, wide)[2] - affinity[node]
    if wide == 1:
        single[0] = open_to[np.argmin(worth)]
        return single
    return np.sort(open_to[np.argsort(worth, kind="mergesort")][:wide]).astype(np.int32)


@compiled_with_arrays
def _fullest(room: Int32, need: int, most: int) -> Int32:
    """As few nodes as the task fits on, those with most room, ascending; none where it does not fit."""
    ranked = np.argsort(-room, kind="mergesort")
    held = 0
    for place in range(min(most, len(ranked))):
        held += room[ranked[place]]
        if held >= need:
            return np.sort(ranked[: place + 1]).astype(np.int32)
    return np.empty(0, np.int32)


@compiled_with_arrays
def _settle(standing: PoolInstant, crowd: Crowd, task: int, nodes: Int32) -> Crowd:
    """The crowd with the task on these nodes; neighbours are slowed."""
    speeds, machines = standing.speeds, standing.machines
    kind = machines.device_kind[machines.first_device[nodes[0]]]
    row = speeds.row[task, min(kind, speeds.row.shape[1] - 1), min(len(nodes), speeds.row.shape[2]) - 1]
    crowd.row[task] = row
    crowd.own[task] = utility_on(standing, crowd, task, nodes, kind, len(nodes))[0]
    crowd.rest[task] = standing.demands.left[task] * np.exp(-crowd.own[task])
    crowd.looks[0] += 2
    for node in nodes:
        for other in crowd.task[node, : crowd.size[node]]:
            if crowd.met[other] < crowd.looks[0]:
                crowd.met[other] = crowd.looks[0]
                crowd.own[other] += speeds.together[crowd.row[other], row]
                crowd.rest[other] *= speeds.slower[crowd.row[other], row]
    if crowd.size[nodes].max() == crowd.task.shape[1]:
        wider = np.full((crowd.task.shape[0], 2 * crowd.task.shape[1]), -1, np.int32)
        wider[:, : crowd.task.shape[1]] = crowd.task
        crowd = Crowd(crowd.size, wider, crowd.row, crowd.own, crowd.rest, crowd.met, crowd.looks)
    for node in nodes:
        crowd.task[node, crowd.size[node]] = task
        crowd.size[node] += 1
    return crowd


@compiled_with_arrays
def _take(standing: PoolInstant, task: int, nodes: Int32, devices: Int32, used: int) -> int:
    """Write down the task's devices on its nodes, evenly as far as there is room; returns how many are written."""
    demands, machines = standing.demands, standing.machines
    need = demands.devices[task]
    begun = used
    shares = _portions(standing, task, nodes)
    for place in range(len(nodes)):
        node, wanted = nodes[place], shares[place]
        before, island = used, -1
        while used - before < wanted:
            device = _next_device(standing, task, node, wanted - (used - before), island)
            island = machines.island[device]
            machines.free[device] -= demands.share[task]
            devices[used] = device
            used += 1
        machines.cpus[node] -= part_of(demands.cpus[task], wanted, need)
        machines.memory_mb[node] -= part_of(demands.memory_mb[task], wanted, need)
    devices[begun:used] = np.sort(devices[begun:used])
    return used


@compiled_with_arrays
def _portions(standing: PoolInstant, task: int, nodes: Int32) -> Int32:
    """How many devices on each of the nodes: as even as their room lets it be."""
    need = standing.demands.devices[task]
    portions = np.zeros(len(nodes), np.int32)
    rest = need
    while rest > 0:
        least = -1
        for place in range(len(nodes)):
            if portions[place] < room_on(standing, task, nodes[place]) and (
                least < 0 or portions[place] < portions[least]
            ):
                least = place
        portions[least] += 1
        rest -= 1
    return portions


@compiled_with_arrays
def _next_device(standing: PoolInstant, task: int, node: int, wanted: int, island: int) -> int:
    """A device of the node: of the island begun, while it has any; else of the one that holds ``wanted`` most
    tightly, or most of them. Of its devices that will do, the one with least left.
    """
    machines = standing.machines
    first, last = machines.first_device[node], machines.first_device[node + 1]
    best, lowest = -1, np.inf
    for device in range(first, last):
        if not _will_do(standing, task, device):
            continue
        room = 0
        for other in range(first, last):
            if machines.island[other] == machines.island[device] and _will_do(standing, task, other):
                room += 1
        rank = float(room) if room >= wanted else float(2 * (last - first) - room)
        if machines.island[device] == island:
            rank = -1.0
        rank += machines.free[device] / 2.0
        if rank < lowest - TINY:
            best, lowest = device, rank
    return best


@compiled_with_arrays
def _will_do(standing: PoolInstant, task: int, device: int) -> bool:
    allowed = (standing.demands.kinds[task] >> np.uint64(standing.machines.device_kind[device])) & np.uint64(1)
    return bool(allowed) and standing.machines.free[device] >= standing.demands.share[task] - TINY

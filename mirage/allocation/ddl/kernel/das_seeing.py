"""The loops of DAS's agents over tasks, machines and neighbours, and how pool and tasks stand, as the loops read
it.

What a placement costs is counted in seconds of waiting: the task's own run time there, and what its neighbours
lose while both run; each weighed by 1 for the task itself and by ``pressure`` for each of its devices, since a
device held longer holds up those that wait for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.kernel.compile import compiled_with_arrays

if TYPE_CHECKING:
    from mirage.domain.pool import PoolView

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]

UNKNOWN = 3600.0
"""Seconds for which a task is taken of which nothing is known, where nothing is known of any other."""
SLOWEST = 1e-3
"""The least speed that is estimated: a table's zero would make times without end."""


class Demands(NamedTuple):
    """What each task asks for, [T]."""

    devices: Int32
    share: Float64
    kinds: UInt64
    max_nodes: Int32
    cpus: Int32
    memory_mb: Int64
    left: Float64
    """Seconds at reference speed that are estimated to be left; never NaN."""


class Machines(NamedTuple):
    """Nodes and devices, and what of them is free."""

    first_device: Int32
    """[N + 1]"""
    device_kind: Int32
    island: Int32
    free: Float64
    cpus: Int32
    memory_mb: Int64


class Speeds(NamedTuple):
    """A ``SpeedTable`` in logarithms."""

    row: Int32
    """[T, K, S]"""
    alone: Float64
    together: Float64
    slower: Float64
    """[R, R] How many times longer a row takes next to another; no logarithm."""


class Holdings(NamedTuple):
    """Who runs where."""

    running: Int32
    held_from: Int32
    held: Int32
    device_node: Int32


class PoolInstant(NamedTuple):
    """One instant."""

    demands: Demands
    machines: Machines
    speeds: Speeds
    holdings: Holdings
    pressure: float
    """Tasks that wait, for each device of the pool: how many are held up by a device that is held on to."""


def standing_of(view: PoolView) -> PoolInstant:
    """The view's arrays; nothing is copied but what has to be made finite."""
    tasks, pool, speeds = view.tasks, view.pool, view.speeds
    demands = Demands(
        tasks.devices,
        tasks.share,
        tasks.kinds,
        tasks.max_nodes,
        tasks.cpus,
        tasks.memory_mb,
        _known(view.remaining),
    )
    machines = Machines(
        pool.first_device, pool.device_kind, pool.island, view.free, view.free_cpus, view.free_memory_mb
    )
    together = np.maximum(speeds.together, SLOWEST)
    alone = np.log(np.maximum(speeds.alone, SLOWEST))
    logarithms = Speeds(speeds.row, alone, np.log(together), 1.0 / together)
    holdings = Holdings(view.running, view.held_from, view.held, pool.device_node)
    return PoolInstant(demands, machines, logarithms, holdings, len(view.pending) / max(len(pool.device_node), 1))


def _known(remaining: Float64) -> Float64:
    """Seconds, never NaN: a task of which nothing is known is taken for one in the middle of the others."""
    known = np.isfinite(remaining)
    middle = float(np.median(remaining[known])) if known.any() else UNKNOWN
    return np.maximum(np.where(known, remaining, middle), 1.0)


TINY = 1e-9
PAIR = ("own", "harm", "utility", "whole", "after", "exact", "outlives", "room")
"""What ``see`` tells of a task and a machine: the columns of its first array."""
NODE = ("free", "tasks", "slowed", "soonest", "latest", "largest_island", "processors")


class Crowd(NamedTuple):
    """The tasks on each node."""

    size: Int32
    """[N]"""
    task: Int32
    """[N, most]"""
    row: Int32
    """[T] Row in the speed table of those that run."""
    own: Float64
    """[T] Logarithm of the speed of those that run."""
    rest: Float64
    """[T] Seconds that those that run will take at that speed."""
    met: Int32
    """[T] Scratch: by which look a task has been met last."""
    looks: Int32
    """[1] How many looks there have been."""


@compiled_with_arrays
def spread_over(standing: PoolInstant, task: int) -> tuple[int, int]:
    """Number of nodes that a running task is on, and the kind of its first device."""
    _, machines, _, holdings, _ = standing
    nodes, last = 0, -1
    for place in range(holdings.held_from[task], holdings.held_from[task + 1]):
        node = holdings.device_node[holdings.held[place]]
        if node != last:
            nodes, last = nodes + 1, node
    first = holdings.held_from[task]
    kind = machines.device_kind[holdings.held[first]] if nodes else 0
    return nodes, kind


@compiled_with_arrays
def speed_row(standing: PoolInstant, task: int, nodes: int, kind: int) -> int:
    """Row of the speed table."""
    row = standing.speeds.row
    return row[task, min(kind, row.shape[1] - 1), min(nodes, row.shape[2]) - 1]


@compiled_with_arrays
def crowd_of(standing: PoolInstant) -> Crowd:
    """Who is on which node."""
    demands, machines, speeds, holdings, _ = standing
    nodes, tasks = len(machines.first_device) - 1, len(demands.devices)
    count = np.zeros(nodes, np.int32)
    most = 1
    for turn in range(2):
        if turn:
            most = max(1, count.max())
            count[:] = 0
            task_on = np.full((nodes, most + 8), -1, np.int32)
        for task in holdings.running:
            last = -1
            for place in range(holdings.held_from[task], holdings.held_from[task + 1]):
                node = holdings.device_node[holdings.held[place]]
                if node != last:
                    if turn:
                        task_on[node, count[node]] = task
                    count[node] += 1
                    last = node
    row = np.zeros(tasks, np.int32)
    own = np.zeros(tasks)
    for task in holdings.running:
        spread, kind = spread_over(standing, task)
        if spread:
            row[task] = speed_row(standing, task, spread, kind)
            own[task] = speeds.alone[row[task]]
    met = np.full(tasks, -1, np.int32)
    for task in holdings.running:
        last = -1
        met[task] = task
        for place in range(holdings.held_from[task], holdings.held_from[task + 1]):
            node = holdings.device_node[holdings.held[place]]
            if node == last:
                continue
            last = node
            for other in task_on[node, : count[node]]:
                if met[other] != task:
                    met[other] = task
                    own[task] += speeds.together[row[task], row[other]]
    met[:] = 0
    return Crowd(count, task_on, row, own, demands.left * np.exp(-own), met, np.zeros(1, np.int32))


@compiled_with_arrays
def room_on(standing: PoolInstant, task: int, node: int) -> int:
    """How many of the node's devices would do for the task, were it there alone with its CPUs and memory."""
    demands, machines = standing.demands, standing.machines
    found = 0
    for device in range(machines.first_device[node], machines.first_device[node + 1]):
        allowed = (demands.kinds[task] >> np.uint64(machines.device_kind[device])) & np.uint64(1)
        if allowed and machines.free[device] >= demands.share[task] - TINY:
            found += 1
    found = min(found, demands.devices[task])
    while found > 0 and not (
        machines.cpus[node] >= part_of(demands.cpus[task], found, demands.devices[task])
        and machines.memory_mb[node] >= part_of(demands.memory_mb[task], found, demands.devices[task])
    ):
        found -= 1
    return found


@compiled_with_arrays
def part_of(total: int, devices: int, of: int) -> int:
    """What a part with so many of the task's devices needs of CPUs or memory."""
    return (total * devices + of - 1) // of


@compiled_with_arrays
def free_on(standing: PoolInstant, node: int) -> float:
    """Devices, in parts of them."""
    machines = standing.machines
    return machines.free[machines.first_device[node] : machines.first_device[node + 1]].sum()


@compiled_with_arrays
def weight_of(standing: PoolInstant, task: int) -> float:
    """What a second of a task's running costs, in seconds of waiting."""
    return 1.0 + standing.pressure * standing.demands.devices[task] * standing.demands.share[task]


@compiled_with_arrays
def utility_on(
    standing: PoolInstant, crowd: Crowd, task: int, nodes: Int32, kind: int, wide: int
) -> tuple[float, float, float]:
    """Logarithm of speed, weighed seconds that neighbours lose by those of running alone, and utility on nodes.

    Utility is minus the logarithm of all that the placement costs by the cost of running alone at reference
    speed: 0 where nobody is disturbed. ``wide``: over how many nodes the task is spread, these among them.
    """
    demands, speeds = standing.demands, standing.speeds
    row = speed_row(standing, task, wide, kind)
    slower = 1.0
    crowd.looks[0] += 2
    look = crowd.looks[0]
    crowd.met[task] = look
    for node in nodes:
        for place in range(crowd.size[node]):
            other = crowd.task[node, place]
            if crowd.met[other] < look - 1:
                crowd.met[other] = look - 1
                slower *= speeds.slower[row, crowd.row[other]]
    slower *= np.exp(-speeds.alone[row])
    time, harm = demands.left[task] * slower, 0.0
    for node in nodes:
        for place in range(crowd.size[node]):
            other = crowd.task[node, place]
            if crowd.met[other] < look:
                crowd.met[other] = look
                lost = speeds.slower[crowd.row[other], row] - 1.0
                harm += weight_of(standing, other) * min(time, crowd.rest[other]) * lost
    harm /= demands.left[task] * weight_of(standing, task)
    return -np.log(slower), harm, -np.log(slower + harm)


@compiled_with_arrays
def see(standing: PoolInstant, crowd: Crowd, rows: Int32) -> Float64:
    """What each of the tasks ``rows`` would meet on each machine: [J, N, len(PAIR)], columns as ``PAIR``."""
    demands, machines = standing.demands, standing.machines
    nodes = len(machines.first_device) - 1
    seen = np.zeros((len(rows), nodes, 8))
    there = np.empty(1, np.int32)
    free = np.array([free_on(standing, node) for node in range(nodes)])
    for place in range(len(rows)):
        task = rows[place]
        need = max(demands.devices[task], 1)
        for node in range(nodes):
            devices = machines.first_device[node + 1] - machines.first_device[node]
            room = room_on(standing, task, node)
            wide = 1 if room >= need else int(np.ceil(need / max(min(room, devices), 1)))
            kind = machines.device_kind[machines.first_device[node]] if devices else 0
            there[0] = node
            own, harm, utility = utility_on(standing, crowd, task, there, kind, wide)
            latest = 0.0
            for known in range(crowd.size[node]):
                if crowd.task[node, known] != task:
                    latest = max(latest, crowd.rest[crowd.task[node, known]])
            line = seen[place, node]
            line[0] = max(own, -3.0)
            line[1] = min(harm, 10.0)
            line[2] = max(utility, -4.0)
            line[3] = 1.0 if room >= need else 0.0
            line[4] = (free[node] - need) / max(devices, 1)
            line[5] = 1.0 if free[node] == need else 0.0
            time = demands.left[task] * np.exp(-own)
            line[6] = (time - latest) / (time + latest + 60.0)
            line[7] = min(room, need) / need
    return seen


@compiled_with_arrays
def see_nodes(standing: PoolInstant, crowd: Crowd, unit: float) -> Float64:
    """How each machine stands: [N, len(NODE)], columns as ``NODE``; times by ``unit`` seconds."""
    machines = standing.machines
    nodes = len(machines.first_device) - 1
    seen = np.zeros((nodes, 7))
    for node in range(nodes):
        first, last = machines.first_device[node], machines.first_device[node + 1]
        devices = max(last - first, 1)
        soonest, latest, slowed = np.inf, 0.0, 0.0
        for other in crowd.task[node, : crowd.size[node]]:
            rest = crowd.rest[other]
            soonest, latest = min(soonest, rest), max(latest, rest)
            slowed += crowd.own[other] - standing.speeds.alone[crowd.row[other]]
        line = seen[node]
        line[0] = machines.free[first:last].sum() / devices
        line[1] = crowd.size[node] / 4.0
        line[2] = max(slowed / max(crowd.size[node], 1), -3.0)
        line[3] = np.log1p(soonest / unit) / 2.0 if crowd.size[node] else 0.0
        line[4] = np.log1p(latest / unit) / 2.0
        line[5] = _largest_island(standing, first, last) / devices
        line[6] = min(machines.cpus[node] / 64.0, 1.0)
    return seen


@compiled_with_arrays
def _largest_island(standing: PoolInstant, first: int, last: int) -> int:
    most, current = 0, 0
    for device in range(first, last):
        if device > first and standing.machines.island[device] != standing.machines.island[device - 1]:
            current = 0
        if standing.machines.free[device] >= 1.0 - TINY:
            current += 1
            most = max(most, current)
    return most

"""Measure how full placement policies make a pool: tasks are placed one after the other, and none ends.

The protocol of Weng et al., "Beware of Fragmentation" (USENIX ATC'23). Tasks of the trace, drawn at random, are
added to the trace until all of them request a set part of all devices (130 %). Tasks and nodes are in random
order, and a task that does not fit is turned away. The result is the part of all devices that is allocated when a
certain part has been requested.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.comparing import run_apart
from mirage.allocation.ddl.speeds import even_speeds
from mirage.domain.errors import ConfigError
from mirage.domain.pool import Pool, PoolView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mirage.domain.pool import Placement, TaskTable
    from mirage.ports import Placer

MARKS = (80, 90, 95, 100, 110, 120, 130)
"""Requested per cent of all devices at which the allocated part is read."""


@dataclass(frozen=True, slots=True)
class Packed:
    """One placement policy on the tasks of one seed."""

    placer: str
    seed: int
    allocated: tuple[float, ...]
    """Allocated per cent of all devices, at each of the marks."""


@dataclass(frozen=True, slots=True)
class Fill:
    """Results of a placement policy over all seeds, at one mark."""

    mark: int
    mean: float
    spread: float
    """The standard deviation over the seeds; NaN for one."""


def pack_all(
    tasks: TaskTable, pool: Pool, placers: Sequence[str], seeds: Sequence[int], fill: int, workers: int
) -> tuple[Packed, ...]:
    """Run every placement policy on every seed's tasks, in this order.

    Raises ``ConfigError`` for tasks that request no devices."""
    runs = [(tasks, pool, name, seed, fill) for name in placers for seed in seeds]
    return tuple(run_apart(pack, runs, workers))


def pack(tasks: TaskTable, pool: Pool, placer: str, seed: int, fill: int) -> Packed:
    """Fill the pool with the tasks of a seed."""
    from mirage.allocation.ddl.registry import placer as made

    drawn, shuffled = draw(tasks, pool, seed, fill)
    placed = place_all(drawn, shuffled, made(placer))
    asked, size = drawn.devices * drawn.share, len(pool.device_node)
    requested = np.cumsum(asked)
    allocated = np.cumsum(np.where(placed, asked, 0.0))
    rows = np.searchsorted(requested, np.array(marks_to(fill)) * size / 100)
    at = allocated[np.minimum(rows, len(drawn) - 1)]
    return Packed(placer, seed, tuple((100 * at / size).tolist()))


def marks_to(fill: int) -> tuple[int, ...]:
    """The marks that are reached, and ``fill``."""
    return (*(mark for mark in MARKS if mark < fill), fill)


def draw(tasks: TaskTable, pool: Pool, seed: int, fill: int) -> tuple[TaskTable, Pool]:
    """The tasks of a seed and the nodes of the pool, both in random order."""
    rng = np.random.default_rng(seed)
    asked = tasks.devices * tasks.share
    wanted = fill / 100 * len(pool.device_node)
    if not asked.sum() > 0:
        raise ConfigError("--pods", "no task needs a device; nothing can be packed")
    more = []
    total = float(asked.sum())
    while total < wanted:
        more.append(int(rng.integers(len(tasks))))
        total += float(asked[more[-1]])
    rows = rng.permutation(np.concatenate([np.arange(len(tasks)), np.array(more, dtype=np.int64)]))
    drawn = tasks.take(rows)
    names = tuple(f"{name}#{i}" for i, name in enumerate(drawn.name))
    return replace(drawn, name=names), in_order(pool, rng.permutation(len(pool.node_names)))


def in_order(pool: Pool, nodes: NDArray[np.int64]) -> Pool:
    """The pool with its nodes in this order."""
    place = np.argsort(nodes)
    devices = np.argsort(place[pool.device_node], kind="stable")
    return replace(
        pool,
        node_names=tuple(pool.node_names[node] for node in nodes),
        cpus=pool.cpus[nodes],
        memory_mb=pool.memory_mb[nodes],
        switch=pool.switch[nodes],
        device_node=place[pool.device_node][devices].astype(np.int32),
        device_index=pool.device_index[devices],
        device_kind=pool.device_kind[devices],
        island=pool.island[devices],
    )


def place_all(tasks: TaskTable, pool: Pool, placer: Placer) -> NDArray[np.bool_]:
    """Which of the tasks find a place, in the order of the table; none ends."""
    order = np.arange(len(tasks), dtype=np.int32)
    placed = np.zeros(len(tasks), dtype=bool)
    for placement in places(tasks, pool, placer, order):
        placed[placement.task] = True
    return placed


def places(tasks: TaskTable, pool: Pool, placer: Placer, order: NDArray[np.int32]) -> tuple[Placement, ...]:
    """The task placed by a policy in a pool."""
    return placer.place(empty_view(tasks, pool, order), order, strict=False)


def empty_view(tasks: TaskTable, pool: Pool, pending: NDArray[np.int32]) -> PoolView:
    """A pool state without any running task."""
    none, count = np.zeros(0, dtype=np.int32), len(tasks)
    return PoolView(
        now=0.0,
        pool=pool,
        tasks=tasks,
        speeds=even_speeds(tasks, pool),
        pending=pending,
        running=none,
        held_from=np.zeros(count + 1, dtype=np.int32),
        held=none,
        task_node=np.full(count, -1, dtype=np.int32),
        free=np.ones(len(pool.device_node)),
        free_cpus=pool.cpus,
        free_memory_mb=pool.memory_mb,
        served=np.zeros(count),
        remaining=tasks.expected,
    )


def summarise(packed: Sequence[Packed], fill: int) -> dict[str, tuple[Fill, ...]]:
    """Mean and standard deviation over the seeds at every mark, by placement policy."""
    found: dict[str, tuple[Fill, ...]] = {}
    for name in dict.fromkeys(one.placer for one in packed):
        table = np.array([one.allocated for one in packed if one.placer == name])
        spread = table.std(axis=0, ddof=1) if len(table) > 1 else np.full(table.shape[1], np.nan)
        found[name] = tuple(map(Fill, marks_to(fill), table.mean(axis=0).tolist(), spread.tolist()))
    return found


def document(packed: Sequence[Packed], fill: int) -> dict[str, object]:
    """All results as JSON: means and every seed."""
    return {
        "schema": "mirage-packing/1",
        "marks": list(marks_to(fill)),
        "placers": {
            name: {
                "mean": [fill_.mean for fill_ in fills],
                "spread": [None if np.isnan(fill_.spread) else fill_.spread for fill_ in fills],
                "seeds": {str(one.seed): list(one.allocated) for one in packed if one.placer == name},
            }
            for name, fills in summarise(packed, fill).items()
        },
    }

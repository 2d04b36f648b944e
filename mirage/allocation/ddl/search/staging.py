"""A view as the coarse pool that plans are tried on.

Coarse: all devices of a node are added up, without kinds, islands and shares; CPUs and memory do not count; there
is no interference; run times are the estimates. If all devices are equal and whole, and nothing else is scarce, it
behaves like the simulated pool with the best-fit placement policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.orderings.belief import remaining
from mirage.allocation.ddl.search.loops.layout import LOAD, SLACK, Scratch, Stage

if TYPE_CHECKING:
    from mirage.domain.pool import PoolView

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scene:
    """A stage and its tasks."""

    stage: Stage
    waiting: Int64
    """[P] Rows of the table of tasks; the first is row ``running`` of the stage."""
    running: int


def stage_of(view: PoolView, waiting: NDArray[np.int32]) -> Scene:
    """The pool now, with those of ``waiting`` that need devices and could get them."""
    running = np.array([t for t in view.running if view.tasks.devices[t] > 0], dtype=np.int64)
    kinds = _kinds(view)
    capacity = _devices_free(view) + _devices_held(view, running)
    could = [t for t in waiting if view.tasks.devices[t] > 0 and _fits(view, int(t), kinds, capacity)]
    waits = np.array(could, dtype=np.int64)
    rows = np.concatenate([running, waits])
    loads = _loads(view, rows)
    most = max(int(loads["most_nodes"].max(initial=1)), 1)
    nodes, parts = _places(view, running, len(rows), most)
    return Scene(Stage(loads, kinds, _devices_free(view), nodes, parts), waits, len(running))


def scratch_of(stage: Stage) -> Scratch:
    """Working memory for one stage."""
    rows = len(stage.loads)
    return Scratch(
        free=np.zeros(len(stage.free)),
        nodes=np.zeros_like(stage.nodes),
        parts=np.zeros_like(stage.parts),
        taken=np.zeros(len(stage.free), dtype=np.uint8),
        end=np.zeros(rows),
        heap=np.zeros(rows, dtype=np.int64),
    )


def _kinds(view: PoolView) -> NDArray[np.uint64]:
    """[N] Kinds of each node."""
    kinds = np.zeros(len(view.pool.node_names), dtype=np.uint64)
    np.bitwise_or.at(kinds, view.pool.device_node, np.uint64(1) << view.pool.device_kind.astype(np.uint64))
    return kinds


def _devices_free(view: PoolView) -> NDArray[np.float64]:
    nodes = len(view.pool.node_names)
    return np.bincount(view.pool.device_node, view.free, minlength=nodes).astype(np.float64)


def _devices_held(view: PoolView, running: Int64) -> NDArray[np.float64]:
    """[N] Devices used by running tasks."""
    held = np.zeros(len(view.pool.node_names))
    for task in running:
        np.add.at(held, view.pool.device_node[_devices_of(view, task)], view.tasks.share[task])
    return held


def _devices_of(view: PoolView, task: int) -> NDArray[np.int32]:
    return view.held[view.held_from[task] : view.held_from[task + 1]]


def _fits(view: PoolView, task: int, kinds: NDArray[np.uint64], capacity: NDArray[np.float64]) -> bool:
    """Whether the task would fit in the empty pool."""
    allowed = np.where(kinds & view.tasks.kinds[task], capacity, 0.0)
    roomiest = np.sort(allowed)[-max(int(view.tasks.max_nodes[task]), 1) :]
    return bool(roomiest.sum() >= view.tasks.devices[task] * view.tasks.share[task] - SLACK)


def _loads(view: PoolView, rows: Int64) -> NDArray[np.void]:
    tasks = view.tasks
    loads = np.zeros(len(rows), dtype=LOAD)
    loads["devices"] = (tasks.devices * tasks.share)[rows]
    loads["kinds"] = tasks.kinds[rows]
    most = np.minimum(np.minimum(tasks.max_nodes, tasks.devices), len(view.pool.node_names))
    loads["most_nodes"] = np.maximum(most, 1)[rows]
    loads["length"] = remaining(view)[rows] / _speeds(view, rows)
    return loads


def _speeds(view: PoolView, rows: Int64) -> NDArray[np.float64]:
    """On as few nodes as possible, on the most suitable kind."""
    table, tasks = view.speeds, view.tasks
    on_node = max(int(np.bincount(view.pool.device_node).max(initial=1)), 1)
    spread = np.minimum(-(-tasks.devices[rows] // on_node), table.row.shape[2]) - 1
    alone = table.alone[table.row[rows[:, None], np.arange(table.row.shape[1]), np.maximum(spread, 0)[:, None]]]
    bits = np.uint64(1) << np.arange(alone.shape[1], dtype=np.uint64)
    allowed = (tasks.kinds[rows, None] & bits) != 0
    return np.asarray(np.where(allowed, alone, 0.0).max(axis=1, initial=1e-9), dtype=np.float64)


def _places(view: PoolView, running: Int64, rows: int, most: int) -> tuple[Int64, NDArray[np.float64]]:
    """Nodes and devices of the running tasks."""
    found = [
        np.unique(view.pool.device_node[_devices_of(view, task)], return_counts=True) for task in running.tolist()
    ]
    width = max([most, *(len(nodes) for nodes, _ in found)])
    nodes, parts = np.zeros((rows, width), dtype=np.int64), np.zeros((rows, width))
    for i, (those, counts) in enumerate(found):
        nodes[i, : len(those)] = those
        parts[i, : len(those)] = counts * view.tasks.share[running[i]]
    return nodes, parts

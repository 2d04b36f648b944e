"""Ordering policy that follows the best plan found for the tasks known so far.

The search begins with the best of plain orders and goes on by annealing from there (``kernel.search``). Plans
are tried on a coarse pool: all devices of a node are added up, without kinds, islands and shares; CPUs and
memory do not count; there is no interference; run times are the estimates. If all devices are equal and whole,
and nothing else is scarce, it behaves like the simulated pool with the best-fit placement policy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.kernel.search import (
    LOAD,
    SLACK,
    CoarsePool,
    Goal,
    Orders,
    TrialMemory,
    anneal,
    cost,
    starts_when_passing,
)
from mirage.allocation.ddl.placers import Confined
from mirage.allocation.ddl.scored_orderings import remaining
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.pool import PoolView, TaskTable

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scene:
    """A stage and its tasks."""

    stage: CoarsePool
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
    return Scene(CoarsePool(loads, kinds, _devices_free(view), nodes, parts), waits, len(running))


def scratch_of(stage: CoarsePool) -> TrialMemory:
    """Working memory for one stage."""
    rows = len(stage.loads)
    return TrialMemory(
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


GOALS = {"jct": Goal(1.0, 0.0), "makespan": Goal(0.0, 1.0)}

_BATCH = 200
"""Moves between two checks of the time."""
_HOT, _COLD = 0.05, 0.0005
"""Heat at the beginning and at the end, as a share of cost / tasks: about the effect of moving one task."""
_EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of a search: it ends at the first that is reached."""

    tries: int = 20
    """Plans tried for each pending task."""
    seconds: float = float("inf")


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of a search."""

    order: Int64
    """[P] Rows of the stage."""
    cost: float
    tried: int


def search(
    stage: CoarsePool, running: int, goal: Goal, effort: Effort, rng: np.random.Generator, *known: Int64
) -> Plan:
    """A plan for the rows of ``stage`` from ``running`` on; ``known``: initial plans, besides plain ones."""
    scratch, began = scratch_of(stage), monotonic()
    first = (*known, *_plain(stage, scratch, running))
    begun = [(cost(stage, scratch, goal, order), order) for order in first]
    least, order = min(begun, key=lambda pair: pair[0])
    orders = Orders(order.copy(), order.copy(), order.copy(), np.array([least, least]))
    moves = effort.tries * len(order) if len(order) > 1 and np.isfinite(least) else 0
    tried = 0
    while tried < moves and (spent := monotonic() - began) < effort.seconds:
        heat = _heat(least / len(order), max(tried / moves, spent / effort.seconds))
        count = min(_BATCH, moves - tried)
        anneal(stage, scratch, goal, orders, rng.random((count, 5)), heat)
        tried += count
    return Plan(orders.best, float(orders.costs[0]), tried + len(begun))


def _heat(scale: float, progress: float) -> float:
    return max(float(scale * _HOT * (_COLD / _HOT) ** progress), 1e-300)


def _plain(stage: CoarsePool, scratch: TrialMemory, running: int) -> Iterator[Int64]:
    """Orders by length x devices^exponent, up and down; and the order of starts, largest first, with passing."""
    rows = np.arange(running, len(stage.loads))
    length, devices = stage.loads["length"][rows], stage.loads["devices"][rows]
    for exponent in _EXPONENTS:
        ascending = rows[np.argsort(length * devices**exponent, kind="stable")]
        yield ascending
        yield ascending[::-1].copy()
    starts = np.zeros(len(stage.loads))
    longest = rows[np.argsort(-length * devices, kind="stable")]
    starts_when_passing(stage, scratch, longest, longest.copy(), starts)
    yield longest[np.argsort(starts[longest], kind="stable")]


class Searched:
    """Searches for a plan, again whenever tasks arrive that the plan does not contain.

    In a plan no task passes another, so it fits rules that are ``strict``. Where tasks may pass, a long one may
    start before several that the plan would have started together.
    """

    name = "searched"

    def __init__(
        self, goal: str = "jct", effort: Effort | None = None, seed: int = 0, *, patient: bool = False
    ) -> None:
        """``goal``: one of ``GOALS``, to be minimised. ``patient``: for placement policies with patience."""
        self._goal, self._effort = GOALS[goal], effort or Effort()
        self._rng = np.random.default_rng(seed)
        self._tasks: TaskTable | None = None
        self._rank = np.empty(0)
        self._confined = Confined() if patient else None

    def static_scores(self, tasks: TaskTable) -> None:
        """None: scores need the state of a pool."""

    def score(self, view: PoolView) -> NDArray[np.float64]:
        """See ``ports.Ordering``: positions in the plan; tasks that can never run on these nodes come last."""
        if self._tasks is not view.tasks:
            self._tasks, self._rank = view.tasks, np.full(len(view.tasks), np.nan)
        if np.isnan(self._rank[view.pending]).any():
            self._plan(view)
        return self._rank[view.pending]

    def _plan(self, view: PoolView) -> None:
        waiting = view.pending[view.task_node[view.pending] < 0]
        tasks = self._confined.of(view.tasks, view.pool) if self._confined else view.tasks
        scene = stage_of(replace(view, tasks=tasks), waiting)
        found = search(
            scene.stage, scene.running, self._goal, self._effort, self._rng, *self._standing(view, scene)
        )
        self._rank[waiting] = np.where(view.tasks.devices[waiting] > 0, len(view.tasks), -1)
        self._rank[scene.waiting[found.order - scene.running]] = np.arange(len(found.order))
        running = view.running[np.isnan(self._rank[view.running])]
        self._rank[running] = -1

    def _standing(self, view: PoolView, scene: Scene) -> tuple[NDArray[np.int64], ...]:
        """The plan so far; new tasks go before the first task that needs more device-time."""
        rank = self._rank[scene.waiting]
        planned = ~np.isnan(rank)
        if not planned.any():
            return ()
        loads = scene.stage.loads[scene.running :]
        area = loads["length"] * loads["devices"]
        old = np.flatnonzero(planned)[np.argsort(rank[planned], kind="stable")]
        place = np.empty(len(rank))
        place[old] = np.arange(len(old))
        highest = np.maximum.accumulate(area[old])
        place[~planned] = np.searchsorted(highest, area[~planned]) - 0.5
        return (np.lexsort((area, place)) + scene.running,)


def searched(options: str = "") -> Searched:
    """Parse ``goal=makespan:tries=200:seconds=9:seed=3:nodes=any``. Raises ``ConfigError``."""
    given = {"goal": "jct", "tries": "20", "seconds": "inf", "seed": "0", "nodes": "any"}
    read: set[str] = set()
    for option in filter(None, options.split(":")):
        key, _, value = (part.strip() for part in option.partition("="))
        if key not in given:
            raise ConfigError("ordering searched", f"unknown option {key!r} (choose from {', '.join(given)})")
        if key in read:
            raise ConfigError("ordering searched", f"{key} is given twice; name each option once")
        given[key] = value
        read.add(key)
    if given["goal"] not in GOALS:
        raise ConfigError("ordering searched", f"goal must be one of {', '.join(GOALS)}, not {given['goal']!r}")
    if given["nodes"] not in ("any", "fewest"):
        raise ConfigError("ordering searched", f"nodes must be any or fewest, not {given['nodes']!r}")
    effort = Effort(_whole(given, "tries"), _seconds(given["seconds"]))
    return Searched(given["goal"], effort, _whole(given, "seed"), patient=given["nodes"] == "fewest")


def _whole(given: dict[str, str], key: str) -> int:
    if not given[key].isdecimal():
        raise ConfigError("ordering searched", f"{key} must be an integer, not {given[key]!r}")
    return int(given[key])


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not seconds > 0:
        raise ConfigError("ordering searched", f"seconds must be a number above 0, not {text!r}")
    return seconds

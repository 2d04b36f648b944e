"""Ordering policy that follows the best plan found for the tasks known so far."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.placers.confining import Confined
from mirage.allocation.ddl.search.planning import GOALS, Effort, search
from mirage.allocation.ddl.search.staging import stage_of
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.ddl.search.staging import Scene
    from mirage.domain.pool import PoolView
    from mirage.domain.task import TaskTable


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

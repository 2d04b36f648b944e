"""Tasks, pool, speeds and scores as tables of the kernel.

All impossible tasks are rejected here together. Scores are those that compiled code can compute without Python,
for runs with preemption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.kernel.layout import (
    CONFIG,
    DEVICE,
    LARGEST,
    NEED,
    NODE,
    RATES,
    TASK,
    USUAL,
    Draft,
    Memo,
    Mix,
    PoolConstants,
    Site,
)
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from mirage.allocation.ddl.dispatch import DispatchRules
    from mirage.domain.pool import Pool, SpeedTable, TaskTable
    from mirage.ports import Ordering

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearScores:
    """base + per_remaining x remaining + per_served x served; infinite where a value is unknown."""

    base: Float64
    per_remaining: Float64
    per_served: Float64

    @classmethod
    def constant(cls, scores: Float64) -> Self:
        """The same at every time."""
        return cls(scores, np.zeros(len(scores)), np.zeros(len(scores)))


@runtime_checkable
class LinearOrdering(Protocol):
    """An ordering policy with linear scores: with it a run with preemption is compiled as a whole, too."""

    def linear_scores(self, tasks: TaskTable) -> LinearScores | None:
        """Coefficients of ``score`` for all tasks; ``None`` where it is not linear."""


def linear_scores(ordering: Ordering, tasks: TaskTable) -> LinearScores | None:
    """The scores of an ordering policy where they are linear or constant; else ``None``."""
    linear = ordering.linear_scores(tasks) if isinstance(ordering, LinearOrdering) else None
    if linear is not None:
        return linear
    static = ordering.static_scores(tasks)
    return None if static is None else LinearScores.constant(static)


class ImpossibleTasks(MirageError):
    """Tasks that no pool can run, or not this one; the text names tasks and reasons."""


def encode_site(tasks: TaskTable, pool: Pool) -> Site:
    """The tables that placing reads."""
    nodes = np.zeros(len(pool.node_names), dtype=NODE)
    nodes["first_device"], nodes["end_device"] = pool.first_device[:-1], pool.first_device[1:]
    nodes["cpus"], nodes["memory"], nodes["switch"] = pool.cpus, pool.memory_mb, pool.switch
    devices = np.zeros(len(pool.device_node), dtype=DEVICE)
    devices["node"], devices["kind"], devices["island"] = pool.device_node, pool.device_kind, pool.island
    devices["price"] = pool.price[pool.device_kind] if len(devices) else 0.0
    largest = np.zeros(1, dtype=LARGEST)
    largest["cpus"] = nodes["cpus"].max(initial=0)
    largest["devices"] = (nodes["end_device"] - nodes["first_device"]).max(initial=0)
    return Site(nodes, devices, encode_needs(tasks), largest)


def encode_needs(tasks: TaskTable) -> np.ndarray:
    """Each task's needs; tasks with equal needs share one row."""
    needs = np.zeros(len(tasks), dtype=NEED)
    needs["devices"], needs["share"], needs["kinds"] = tasks.devices, tasks.share, tasks.kinds
    needs["max_nodes"] = np.where(tasks.devices > 0, np.maximum(tasks.max_nodes, 1), 1)
    needs["cpus"], needs["memory"] = tasks.cpus, tasks.memory_mb
    plain = np.stack([needs[name].view(np.int64) for name in NEED.names[:-1]], axis=1)  # type: ignore[index]
    if len(needs):
        needs["likeness"] = np.unique(plain, axis=0, return_inverse=True)[1].reshape(-1)
    return needs


def likenesses(site: Site) -> int:
    """How many different needs there are."""
    return int(site.needs["likeness"].max(initial=-1)) + 1


NO_MIX = Mix(np.zeros(0, dtype=USUAL), np.zeros(1, dtype=RATES), np.zeros(1), np.zeros(0))


def new_draft(site: Site, mix: Mix = NO_MIX, memo: int = 1) -> Draft:
    """Working memory for placing; ``mix`` and space in the memo for the rules that look ahead."""
    return Draft(
        size=np.zeros(2, dtype=np.int64),
        devices=np.zeros(len(site.devices), dtype=np.int32),
        nodes=np.zeros(len(site.nodes), dtype=np.int32),
        taken=np.zeros(len(site.nodes), dtype=np.int64),
        failed=np.zeros(likenesses(site), dtype=np.uint8),
        marked=np.zeros(len(site.devices), dtype=np.uint8),
        scratch=np.zeros(len(site.devices)),
        mix=mix,
        memo=Memo(np.zeros(memo, dtype=np.uint64), np.zeros(memo)),
    )


def encode(tasks: TaskTable, pool: Pool, speeds: SpeedTable, rules: DispatchRules) -> tuple[PoolConstants, Site]:
    """All constant tables. Raises ``ImpossibleTasks`` for what cannot be simulated."""
    refuse_bad_columns(tasks, speeds, pool)
    site = encode_site(tasks, pool)
    count = len(tasks)
    arrivals = np.lexsort((np.arange(count), tasks.submit)).astype(np.int32)
    rows = np.zeros(count, dtype=TASK)
    rows["submit"], rows["work"] = tasks.submit, tasks.work
    rows["expected"], rows["restart"] = tasks.expected, tasks.restart
    rows["rank"][arrivals] = np.arange(count)
    rows["first_held"] = np.cumsum(tasks.devices) - tasks.devices
    parts = most_parts(site)
    rows["first_part"] = np.cumsum(parts) - parts
    config = np.zeros(1, dtype=CONFIG)
    config["preempt"], config["move"] = rules.preempt, rules.move
    config["strict"], config["quantum"] = rules.strict, rules.quantum
    config["interferes"], config["likenesses"] = speeds.interferes, likenesses(site)
    first_waiter, waiters = _waiters(tasks)
    fixed = PoolConstants(
        config=config,
        tasks=rows,
        arrivals=arrivals,
        rows=np.ascontiguousarray(speeds.row, dtype=np.int32),
        alone=np.ascontiguousarray(speeds.alone, dtype=np.float64),
        together=np.ascontiguousarray(speeds.together, dtype=np.float64),
        first_waiter=first_waiter,
        waiters=waiters,
    )
    return fixed, site


def most_parts(site: Site) -> np.ndarray:
    """Largest number of nodes over which each task can be spread."""
    needs = site.needs
    wanted = np.minimum(needs["max_nodes"], np.maximum(needs["devices"], 1))
    return np.asarray(np.minimum(wanted, len(site.nodes)))


def _waiters(tasks: TaskTable) -> tuple[np.ndarray, np.ndarray]:
    """Dependents of each task, one list after the other. Raises ``ImpossibleTasks`` on a cycle."""
    pairs = [(before, task) for task, those in enumerate(tasks.after) for before in set(those)]
    if any(not 0 <= before < len(tasks) for before, _ in pairs):
        raise ImpossibleTasks("a task waits for a row that the table does not have")
    pairs.sort()
    counts = np.bincount([before for before, _ in pairs], minlength=len(tasks)) if pairs else np.zeros(len(tasks))
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    waiters = np.array([task for _, task in pairs], dtype=np.int32)
    _refuse_cycles(tasks, first, waiters)
    return first, waiters


def _refuse_cycles(tasks: TaskTable, first: np.ndarray, waiters: np.ndarray) -> None:
    open_ = np.bincount(waiters, minlength=len(tasks))
    ready = list(np.flatnonzero(open_ == 0))
    for task in ready:
        for waiter in waiters[first[task] : first[task + 1]]:
            open_[waiter] -= 1
            if open_[waiter] == 0:
                ready.append(waiter)
    if len(ready) < len(tasks):
        caught = ", ".join(tasks.name[t] for t in np.flatnonzero(open_ > 0)[:5])
        raise ImpossibleTasks(f"tasks wait for one another in a cycle, and none can begin: {caught}")


def refuse_bad_columns(tasks: TaskTable, speeds: SpeedTable, pool: Pool) -> None:
    """Raise ``ImpossibleTasks`` for values that cannot be simulated."""
    shape = (len(tasks), len(pool.kinds))
    wrong = {
        "work is unknown or negative": ~(tasks.work >= 0) | np.isinf(tasks.work),
        "submit is not a finite time": ~np.isfinite(tasks.submit),
        "the share of a device is not in (0, 1]": ~((tasks.share > 0) & (tasks.share <= 1)),
        "a share of more than one device": (tasks.share < 1) & (tasks.devices != 1) & (tasks.devices != 0),
        "devices, cpus or memory are negative": (tasks.devices < 0) | (tasks.cpus < 0) | (tasks.memory_mb < 0),
        "restart is negative or infinite": (tasks.restart < 0) | np.isinf(tasks.restart),
    }
    complaints = [f"{reason}: {_named(tasks, rows)}" for reason, rows in wrong.items() if rows.any()]
    if speeds.row.shape[:2] != shape or speeds.row.shape[2] < 1:
        complaints.append(f"the speed table is for {speeds.row.shape[:2]} tasks and kinds, not {shape}")
    elif speeds.row.size and not (speeds.row.min() >= 0 and speeds.row.max() < len(speeds.alone)):
        complaints.append("the speed table refers to rows that it does not have")
    if not ((speeds.alone > 0) & np.isfinite(speeds.alone)).all() or not (speeds.together > 0).all():
        complaints.append("the speed table has speeds of 0 or less")
    if complaints:
        raise ImpossibleTasks("; ".join(complaints))


def _named(tasks: TaskTable, rows: np.ndarray) -> str:
    """Names of the first tasks, and the number of all."""
    found = np.flatnonzero(rows)
    names = ", ".join(tasks.name[row] for row in found[:5])
    return names if len(found) <= 5 else f"{names} and {len(found) - 5} more"


def refuse_misfits(tasks: TaskTable, fits: np.ndarray) -> None:
    """Raise ``ImpossibleTasks`` for tasks that do not fit even into the empty pool."""
    if not fits.all():
        raise ImpossibleTasks(f"do not fit into the pool even when it is empty: {_named(tasks, ~fits)}")

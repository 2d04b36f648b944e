"""The decision step that the simulated pool and the real engine share: from a view to moves.

With preemption, in the order of scores: a running task stays. A pending task is placed in the free resources.
If it does not fit, the running tasks behind it are removed, the last first, until it fits; tasks whose devices
(or CPUs, memory) it then uses are preempted. So no task is moved without need, and no task loses a device to
one behind it. A task that would not fit even without all tasks behind it is skipped. A preempted task is placed
again at its turn, like any pending one.

With moves: all candidates are placed in the order of scores, each into the resources left by those before it.
The number that fits determines which tasks run now. Running tasks among them stay where they are if the others
then find a place. Otherwise all go to the places where they were packed, and running tasks whose place changes
are moved: stopped, and resumed there.

Both work for any placement policy; built-in ones do the same in one compiled call (``kernel.rearranging``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import Placement, PoolView
    from mirage.ports import Ordering, Placer

SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Vacancy:
    """Free resources and running tasks, to be changed."""

    view: PoolView
    free: NDArray[np.float64]
    cpus: NDArray[np.int64]
    memory: NDArray[np.int64]
    moved: dict[int, tuple[NDArray[np.int32], int] | None] = field(default_factory=dict)
    """Tasks that are elsewhere than in the view, with devices and first node; ``None``: nowhere."""

    @classmethod
    def of(cls, view: PoolView) -> Self:
        """A copy of the view's state."""
        return cls(view, view.free.copy(), view.free_cpus.astype(np.int64), view.free_memory_mb.copy())

    def seen(self) -> PoolView:
        """The view as it would be with these free resources and these running tasks."""
        cpus = np.maximum(self.cpus, 0).astype(np.int32)
        view = replace(self.view, free=self.free, free_cpus=cpus, free_memory_mb=np.maximum(self.memory, 0))
        return self._peopled(view) if self.moved else view

    def _peopled(self, view: PoolView) -> PoolView:
        stay = [(task, self._held(task), int(view.task_node[task])) for task in view.running.tolist()]
        there = [one for one in stay if one[0] not in self.moved]
        there += [(task, *place) for task, place in self.moved.items() if place is not None]
        there.sort(key=lambda one: one[0])
        lengths, task_node = np.zeros(len(view.tasks) + 1, dtype=np.int32), np.full_like(view.task_node, -1)
        for task, devices, node in there:
            lengths[task + 1], task_node[task] = len(devices), node
        return replace(
            view,
            running=np.array([task for task, _, _ in there], dtype=np.int32),
            held_from=np.cumsum(lengths, dtype=np.int32),
            held=np.concatenate([np.zeros(0, dtype=np.int32), *(devices for _, devices, _ in there)]),
            task_node=task_node,
        )

    def _held(self, task: int) -> NDArray[np.int32]:
        return self.view.held[self.view.held_from[task] : self.view.held_from[task + 1]]

    def move(self, task: int, devices: NDArray[np.int32], node: int, sign: int) -> None:
        """Release (1) or take (-1) the resources of the task with these devices, or on ``node`` without any."""
        tasks = self.view.tasks
        self.moved[task] = (devices, node) if sign < 0 else None
        self.free[devices] += sign * tasks.share[task]
        nodes, counts = np.unique(self.view.pool.device_node[devices], return_counts=True)
        if not len(devices):
            nodes, counts = np.array([node]), np.array([1])
        of = max(int(tasks.devices[task]), 1)
        self.cpus[nodes] += sign * -(-int(tasks.cpus[task]) * counts // of)
        self.memory[nodes] += sign * -(-int(tasks.memory_mb[task]) * counts // of)

    def overdrawn(self, devices: NDArray[np.int32], node: int) -> bool:
        """Whether more is taken than exists, on these devices or their nodes."""
        nodes = np.unique(self.view.pool.device_node[devices]) if len(devices) else np.array([node])
        return bool(
            (self.free[devices] < -SLACK).any() or (self.cpus[nodes] < 0).any() or (self.memory[nodes] < 0).any()
        )


def rearrange(
    view: PoolView, order: NDArray[np.int32], placer: Placer, *, strict: bool
) -> tuple[tuple[Placement, ...], tuple[int, ...]]:
    """Which tasks start where, and which are preempted for them."""
    plan = _Plan(view, order, placer)
    starts = []
    for i, task in enumerate(order):
        if task in plan.kept:
            plan.settle(int(task))
            continue
        placement = plan.place(i)
        if placement is not None:
            starts.append(placement)
        elif strict:
            break
    displaced = [int(t) for t in order if view.task_node[t] >= 0 and t not in plan.kept]
    return tuple(starts), tuple(displaced)


class _Plan:
    """The free resources now (``now``), and those without all running tasks behind the present one."""

    def __init__(self, view: PoolView, order: NDArray[np.int32], placer: Placer) -> None:
        self._view, self._order, self._placer = view, order, placer
        self._now, self._roomy = Vacancy.of(view), Vacancy.of(view)
        self.kept = {int(t) for t in order if view.task_node[t] >= 0}
        """Tasks that run and are not displaced."""
        for task in self.kept:
            self._move(self._roomy, task, 1)

    def settle(self, task: int) -> None:
        """Keep the running task whose turn has come."""
        self._move(self._roomy, task, -1)

    def place(self, i: int) -> Placement | None:
        """A place for the i-th of the order, taken from tasks behind it if necessary."""
        task, cleared = int(self._order[i]), list[int]()
        found = self._try(self._now, task)
        if found is None and self._try(self._roomy, task) is not None:
            found, cleared = self._clear(i)
        if found is not None:
            self._now.move(task, found.devices, int(found.nodes[0]), -1)
            self._roomy.move(task, found.devices, int(found.nodes[0]), -1)
        self._put_back(cleared)
        return found

    def _try(self, vacancy: Vacancy, task: int) -> Placement | None:
        found = self._placer.place(vacancy.seen(), np.array([task], dtype=np.int32), strict=False)
        return found[0] if found else None

    def _clear(self, i: int) -> tuple[Placement | None, list[int]]:
        """Remove running tasks behind the i-th, the last first, until it fits; its place, and those removed."""
        cleared: list[int] = []
        for task in (int(t) for t in self._order[:i:-1] if int(t) in self.kept):
            self._move(self._now, task, 1)
            cleared.append(task)
            found = self._try(self._now, int(self._order[i]))
            if found is not None:
                return found, cleared
        return None, cleared

    def _put_back(self, cleared: list[int]) -> None:
        """Restore in order; tasks that collide with the placement are displaced."""
        for task in reversed(cleared):
            self._move(self._now, task, -1)
            if self._now.overdrawn(self._held(task), int(self._view.task_node[task])):
                self._move(self._now, task, 1)
                self.kept.discard(task)

    def _held(self, task: int) -> NDArray[np.int32]:
        view = self._view
        return view.held[view.held_from[task] : view.held_from[task + 1]]

    def _move(self, vacancy: Vacancy, task: int, sign: int) -> None:
        vacancy.move(task, self._held(task), int(self._view.task_node[task]), sign)


def repack(
    view: PoolView, order: NDArray[np.int32], placer: Placer, *, strict: bool
) -> tuple[tuple[Placement, ...], tuple[int, ...]]:
    """Which tasks start where, and which are stopped for them or to be moved."""
    running = [int(task) for task in order if view.task_node[task] >= 0]
    packed = _pack(_without(view, running), order, placer, strict=strict)
    chosen = {placement.task for placement in packed}
    going = tuple(task for task in running if task not in chosen)
    coming = np.array([t for t in order if t in chosen and view.task_node[t] < 0], dtype=np.int32)
    beside = placer.place(_without(view, going).seen(), coming, strict=True) if len(coming) else ()
    if len(beside) == len(coming):
        return beside, going
    moved = {p.task for p in packed if view.task_node[p.task] >= 0 and not _is_there(view, p)}
    starts = tuple(p for p in packed if view.task_node[p.task] < 0 or p.task in moved)
    return starts, tuple(task for task in running if task not in chosen or task in moved)


def _without(view: PoolView, running: list[int] | tuple[int, ...]) -> Vacancy:
    """Free resources without these tasks."""
    vacancy = Vacancy.of(view)
    for task in running:
        vacancy.move(task, _held(view, task), int(view.task_node[task]), 1)
    return vacancy


def _pack(vacancy: Vacancy, order: NDArray[np.int32], placer: Placer, *, strict: bool) -> tuple[Placement, ...]:
    """Place the tasks that fit; ``strict``: after a pending task has failed, only running ones."""
    if not strict:
        return placer.place(vacancy.seen(), order, strict=False)
    packed: list[Placement] = []
    blocked, task_node = False, vacancy.view.task_node
    for i, task in enumerate(order):
        if blocked and task_node[task] < 0:
            continue
        found = placer.place(vacancy.seen(), order[i : i + 1], strict=True)
        for placement in found:
            vacancy.move(int(task), placement.devices, int(placement.nodes[0]), -1)
        packed += found
        blocked = blocked or (not found and bool(task_node[task] < 0))
    return tuple(packed)


def _is_there(view: PoolView, placement: Placement) -> bool:
    if not len(placement.devices):
        return bool(view.task_node[placement.task] == placement.nodes[0])
    return np.array_equal(_held(view, placement.task), placement.devices)


def _held(view: PoolView, task: int) -> NDArray[np.int32]:
    return view.held[view.held_from[task] : view.held_from[task + 1]]


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """Rules of the pool, independent of the policies."""

    strict: bool = False
    """No task passes one that does not fit; otherwise later tasks may."""
    preempt: bool = False
    """Tasks with a checkpoint (``restart`` is not NaN) may be preempted by those before them."""
    move: bool = False
    """With ``preempt``: tasks may also be moved elsewhere, where that makes room for others."""
    quantum: float = float("inf")
    """Seconds between two decisions while any task waits: for policies whose scores change with time."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Stop these tasks, then start those. A task in both moves."""

    starts: tuple[Placement, ...] = ()
    preemptions: tuple[int, ...] = ()


@runtime_checkable
class Rearranger(Protocol):
    """A placement policy that decides with preemption in one call, by the rules of ``rearranging`` and
    ``repacking``."""

    def rearrange(
        self, view: PoolView, order: NDArray[np.int32], *, strict: bool, move: bool
    ) -> tuple[tuple[Placement, ...], tuple[int, ...]]:
        """Which tasks start where, and which are preempted for them."""


class BadScores(MirageError):
    """An ordering policy returned scores that cannot be sorted."""


def dispatch(view: PoolView, ordering: Ordering, placer: Placer, rules: DispatchRules) -> Moves:
    """Which tasks start where now, and which are preempted. Empty where no task is pending."""
    if not len(view.pending):
        return Moves()
    order = in_order(view, ordering)
    if not rules.preempt:
        return Moves(placer.place(view, order, strict=rules.strict))
    if isinstance(placer, Rearranger):
        return Moves(*placer.rearrange(view, order, strict=rules.strict, move=rules.move))
    decide = repack if rules.move else rearrange
    return Moves(*decide(view, order, placer, strict=rules.strict))


def in_order(view: PoolView, ordering: Ordering) -> NDArray[np.int32]:
    """The pending tasks by score; ties by submission. Raises ``BadScores``."""
    scores = np.asarray(ordering.score(view), dtype=np.float64)
    if scores.shape != view.pending.shape:
        raise BadScores(f"{ordering.name}: {scores.shape} scores for {len(view.pending)} tasks")
    if np.isnan(scores).any():
        task = view.tasks.name[int(view.pending[np.isnan(scores).argmax()])]
        raise BadScores(f"{ordering.name}: the score of task {task} is not a number")
    return view.pending[np.argsort(scores, kind="stable")]

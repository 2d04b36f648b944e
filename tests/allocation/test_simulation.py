"""The compiled pool against a slow and plain one, and what must hold of any run."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_strategies import made_pool, one_speed, plain_pool, pools, speed_tables, tables, task_table
from reference_pool import ReferencePool

from mirage.allocation.ddl.encode import ImpossibleTasks, LinearScores
from mirage.allocation.ddl.placers import CompiledPlacer
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool, Stalled
from mirage.domain.pool import Placement, SpeedTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from reference_pool import Task

    from mirage.allocation.ddl.outcome import TaskRunResult
    from mirage.domain.pool import PoolView, TaskTable
    from mirage.ports import Placer

LAST = 10**9
"""The score of unknown tasks."""


class Scored:
    """The same ordering for both sides: as rows of a table, and as tasks of the reference."""

    def __init__(self, name: str, reference: Callable[[Task], Fraction]) -> None:
        self.name = name
        self.reference = reference

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64] | None:
        if self.name == "fifo":
            return tasks.submit
        return np.nan_to_num(tasks.expected, nan=LAST) if self.name == "sjf" else None

    def linear_scores(self, tasks: TaskTable) -> LinearScores | None:
        none = np.zeros(len(tasks))
        if self.name == "las":
            return LinearScores(none, none, tasks.devices.astype(np.float64))
        return LinearScores(none, np.maximum(tasks.devices, 1.0), none) if self.name == "srsf" else None

    def score(self, view: PoolView) -> NDArray[np.float64]:
        static = self.static_scores(view.tasks)
        if static is None and self.name == "las":
            static = view.served * view.tasks.devices
        if static is None:
            static = np.nan_to_num(view.remaining * np.maximum(view.tasks.devices, 1), nan=LAST)
        return static[view.pending]


def _left(task: Task) -> Fraction:
    return Fraction(LAST) if task.remaining is None else task.remaining * max(task.devices, 1)


class Opaque:
    """An ordering policy of which the simulation knows only the port."""

    def __init__(self, inner: Scored) -> None:
        self.name, self._inner = inner.name, inner

    def static_scores(self, tasks: TaskTable) -> None:
        return None

    def score(self, view: PoolView) -> NDArray[np.float64]:
        return self._inner.score(view)


ORDERINGS = (
    Scored("fifo", lambda task: task.submit),
    Scored("sjf", lambda task: Fraction(LAST) if task.expected is None else task.expected),
    Scored("las", lambda task: task.served * task.devices),
    Scored("srsf", _left),
)
RULES = st.builds(
    DispatchRules,
    preempt=st.sampled_from((True, True, False)),
    move=st.booleans(),
    strict=st.booleans(),
    quantum=st.sampled_from((float("inf"), 3.0, 4.0)),  # longer than any restart: otherwise no work may get done
)


class Uncompiled:
    """A placement policy that the simulation knows nothing of but its port."""

    def __init__(self, name: str) -> None:
        self._inner = CompiledPlacer(name)
        self.name = name

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        return self._inner.place(view, order, strict=strict)


@st.composite
def worlds(draw: st.DrawFn) -> SimulatedPool:
    pool = draw(pools())
    tasks = draw(tables(pool))
    return SimulatedPool(tasks, pool, draw(speed_tables(tasks, pool)), draw(RULES))


@settings(max_examples=300)
@given(worlds(), st.sampled_from(ORDERINGS), st.sampled_from(("first-fit", "best-fit")), st.integers(0, 2))
def test_every_instant_is_that_of_the_plain_pool(
    world: SimulatedPool, ordering: Scored, name: str, port: int
) -> None:
    """Compiled as a whole, decision by decision, and with a placement policy behind its port alone."""
    placer: Placer = Uncompiled(name) if port == 2 else CompiledPlacer(name)
    found = world.play(Opaque(ordering) if port else ordering, placer)
    plain = ReferencePool(world.tasks, world.pool, world.speeds, world.rules, best_fit=name == "best-fit")
    plain.play(ordering.reference)
    for row, task in enumerate(plain.tasks):
        told = (task.start, task.end, task.served, task.preemptions)
        assert (found.start[row], found.end[row], found.served[row], found.preemptions[row]) == told
        assert found.fee[row] == pytest.approx(float(task.fee))


@settings(max_examples=100)
@given(worlds(), st.sampled_from(ORDERINGS))
def test_what_must_hold_of_any_run(world: SimulatedPool, ordering: Scored) -> None:
    tasks, found = world.tasks, world.play(ordering, CompiledPlacer("best-fit"))
    _no_device_is_given_twice(found)
    assert (found.start >= tasks.submit).all()
    assert (found.end >= found.start).all()
    for row, those in enumerate(tasks.after):
        assert all(found.end[before] <= found.start[row] for before in those)
    held = np.bincount(found.segments.task, found.segments.end - found.segments.start, minlength=len(tasks))
    assert held == pytest.approx(found.served * tasks.devices)
    assert (found.preemptions[np.isnan(tasks.restart)] == 0).all()
    assert world.rules.preempt or not found.preemptions.any()


def _no_device_is_given_twice(found: TaskRunResult) -> None:
    """At no time more than one whole device; a task never has one device twice."""
    log = found.segments
    for device in np.unique(log.device):
        rows = np.flatnonzero((log.device == device) & (log.end > log.start))
        for row in rows:
            during = rows[(log.start[rows] <= log.start[row]) & (log.end[rows] > log.start[row])]
            assert found.tasks.share[log.task[during]].sum() <= 1.0
            assert len(set(log.task[during])) == len(during)


@given(worlds(), st.sampled_from(ORDERINGS), st.integers(0, 6))
def test_a_copy_goes_its_own_way(world: SimulatedPool, ordering: Scored, steps: int) -> None:
    untouched, placer = world.copy(), CompiledPlacer("first-fit")
    for _ in range(steps):
        if not world.advance():
            break
        for placement in placer.place(world.view(), world.view().pending, strict=True)[:1]:
            if world.view().task_node[placement.task] < 0:
                world.start(placement)
    twin = world.copy()
    ends = twin.play(ordering, placer).end
    assert np.array_equal(ends, world.play(ordering, placer).end)
    assert np.isnan(untouched.outcome().start).all()


# Speeds


def test_a_neighbour_slows_for_as_long_as_it_is_there() -> None:
    tasks = task_table([10.0, 4.0], submit=[0.0, 2.0])
    pool = plain_pool(1, 2)
    speeds = SpeedTable(np.zeros((2, 2, 1), dtype=np.int32), np.ones(1), np.full((1, 1), 0.5))
    found = SimulatedPool(tasks, pool, speeds, DispatchRules()).play(ORDERINGS[0], CompiledPlacer("first-fit"))
    # Alone until 2, at half speed until the other ends at 2 + 4 / 0.5, then the 10 - 2 - 4 that are left.
    assert found.end.tolist() == [14.0, 10.0]


def test_two_that_share_two_nodes_count_each_other_once() -> None:
    tasks = task_table([8.0, 8.0], devices=[2, 2], max_nodes=np.array([2, 2], dtype=np.int32))
    speeds = SpeedTable(np.zeros((2, 2, 1), dtype=np.int32), np.ones(1), np.full((1, 1), 0.5))
    world = SimulatedPool(tasks, plain_pool(2, 2), speeds, DispatchRules())
    assert world.advance()
    for task, devices in enumerate(([0, 2], [1, 3])):
        world.start(Placement(task, np.array(devices, dtype=np.int32), np.array([0, 1], dtype=np.int32)))
    assert not world.advance()
    assert world.outcome().end.tolist() == [16.0, 16.0]


def test_a_resumption_costs_what_it_is_said_to_cost() -> None:
    tasks = task_table([10.0, 1.0], submit=[0.0, 4.0], restart=np.array([3.0, np.nan]))
    world = SimulatedPool(tasks, plain_pool(1, 1), one_speed(tasks, plain_pool(1, 1)), DispatchRules(preempt=True))
    found = world.play(ORDERINGS[3], CompiledPlacer("first-fit"))
    assert found.end.tolist() == [5.0 + 3.0 + 6.0, 5.0]
    assert found.served.tolist() == [4.0 + 3.0 + 6.0, 1.0]
    assert found.preemptions.tolist() == [1, 0]
    assert found.fee.sum() == pytest.approx(14.0 / 3600.0)


# What is rejected


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"work": np.array([1.0, np.nan])}, "work is unknown or negative: t1"),
        ({"devices": np.array([1, 3], dtype=np.int32)}, "do not fit into the pool even when it is empty: t1"),
        ({"share": np.array([0.0, 1.0])}, "the share of a device is not in .0, 1.: t0"),
        ({"after": ((1,), (0,))}, "in a cycle, and none can begin: t0, t1"),
        ({"after": ((), (5,))}, "waits for a row that the table does not have"),
        ({"restart": np.array([-1.0, 1.0])}, "restart is negative or infinite: t0"),
    ],
)
def test_tasks_that_make_no_sense_are_refused(change: dict[str, object], complaint: str) -> None:
    tasks, pool = replace(task_table([1.0, 2.0]), **change), plain_pool(1, 2)  # type: ignore[arg-type]
    with pytest.raises(ImpossibleTasks, match=complaint):
        SimulatedPool(tasks, pool, one_speed(tasks, pool), DispatchRules())


def _world() -> SimulatedPool:
    tasks = task_table([5.0, 5.0, 5.0], devices=[1, 2, 0], cpus=np.array([0, 0, 3], dtype=np.int32))
    pool = made_pool([[0, 1], [0]], [4, 2], [10, 10])
    return SimulatedPool(tasks, pool, one_speed(tasks, pool), DispatchRules())


@pytest.mark.parametrize(
    ("task", "devices", "node", "complaint"),
    [
        (0, [0, 1], 0, "another number of devices"),
        (1, [1, 0], 0, "twice or out of order"),
        (1, [1, 2], 0, "spread over more nodes"),
        (0, [3], 0, "does not have"),
        (2, [], 1, "lacks CPUs or memory"),
        (2, [], 7, "does not have"),
    ],
)
def test_placements_that_cannot_be_are_refused(task: int, devices: list[int], node: int, complaint: str) -> None:
    world = _world()
    assert world.advance()
    with pytest.raises(ValueError, match=complaint):
        world.start(Placement(task, np.array(devices, dtype=np.int32), np.array([node], dtype=np.int32)))
    assert world.view().free.tolist() == [1.0, 1.0, 1.0]


def test_nobody_starts_twice_or_on_what_is_taken() -> None:
    world = _world()
    assert world.advance()
    at = Placement(0, np.array([0], dtype=np.int32), np.array([0], dtype=np.int32))
    world.start(at)
    with pytest.raises(ValueError, match="t0: is not pending"):
        world.start(at)
    with pytest.raises(ValueError, match="t1: a device of its placement is not free"):
        world.start(Placement(1, np.array([0, 1], dtype=np.int32), np.array([0], dtype=np.int32)))
    with pytest.raises(ValueError, match="t0: does not run, or has no checkpoint"):
        world.preempt(0)


def test_a_policy_that_starts_nothing_is_told_so() -> None:
    class Idle:
        name = "idle"

        def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
            return ()

    with pytest.raises(Stalled, match="3 tasks wait, nothing runs, and none of them starts: t0, t1, t2"):
        _world().play(ORDERINGS[0], Idle())


def test_a_policy_that_changes_its_mind_before_anything_is_done_is_told_so() -> None:
    tasks, pool = task_table([9.0, 9.0], restart=np.array([2.0, 2.0])), plain_pool(1, 1)
    world = SimulatedPool(tasks, pool, one_speed(tasks, pool), DispatchRules(preempt=True, quantum=1.0))
    with pytest.raises(Stalled, match="repeatedly before any work is done"):
        world.play(ORDERINGS[2], CompiledPlacer("first-fit"))

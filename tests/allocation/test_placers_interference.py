"""The interference-aware placement policy, against every place that there is and sums of speeds in plain
Python."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_strategies import made_pool, plain_pool, pools, speed_tables, tables, task_table

from mirage.allocation.ddl.interference import BestResponse
from mirage.allocation.ddl.packing import empty_view
from mirage.allocation.ddl.scored_orderings import ShortestFirst
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool
from mirage.domain.pool import Placement, SpeedTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView

Place = tuple[tuple[int, ...], tuple[int, ...]]
"""Devices and nodes."""


@st.composite
def instants(draw: st.DrawFn, *, undivided: bool) -> PoolView:
    """Tasks before an empty pool, each node of one kind; ``undivided``: each on one node."""
    pool = draw(pools())
    kinds = draw(st.lists(st.integers(0, 1), min_size=3, max_size=3))
    pool = replace(pool, device_kind=np.array([kinds[n] for n in pool.device_node], dtype=np.int32))
    tasks = draw(tables(pool))
    if undivided:
        most = int(np.bincount(pool.device_node).max())
        tasks = replace(tasks, max_nodes=np.ones_like(tasks.max_nodes), devices=np.minimum(tasks.devices, most))
    view = empty_view(tasks, pool, np.arange(len(tasks), dtype=np.int32))
    return replace(view, speeds=draw(speed_tables(tasks, pool)))


def speed_row(view: PoolView, task: int, place: Place) -> int:
    devices, nodes = place
    kinds = [int(view.pool.device_kind[d]) for d in devices] or [0]
    spread = min(len(nodes), view.speeds.row.shape[2])
    rows = [int(view.speeds.row[task, kind, spread - 1]) for kind in kinds]
    return min(rows, key=lambda row: float(view.speeds.alone[row]))


def all_speeds(view: PoolView, where: dict[int, Place]) -> float:
    """The sum over all tasks, by the definition of ``SpeedTable``."""
    total = 0.0
    for task, place in where.items():
        row = speed_row(view, task, place)
        speed = float(view.speeds.alone[row])
        for other, there in where.items():
            if other != task and set(place[1]) & set(there[1]):
                speed *= float(view.speeds.together[row, speed_row(view, other, there)])
        total += speed
    return total


def fits(view: PoolView, where: dict[int, Place]) -> bool:
    """Whether all of them fit at the same time."""
    free, cpus, memory = view.free.copy(), view.free_cpus.astype(int), view.free_memory_mb.astype(int)
    tasks = view.tasks
    for task, (devices, nodes) in where.items():
        of = int(tasks.devices[task])
        if any(not int(tasks.kinds[task]) >> int(view.pool.device_kind[d]) & 1 for d in devices):
            return False
        free[list(devices)] -= tasks.share[task]
        for node in nodes:
            count = sum(int(view.pool.device_node[d]) == node for d in devices) if of else 1
            cpus[node] -= -(-int(tasks.cpus[task]) * count // max(of, 1))
            memory[node] -= -(-int(tasks.memory_mb[task]) * count // max(of, 1))
    return bool(free.min(initial=0.0) > -1e-9 and cpus.min() >= 0 and memory.min() >= 0)


def every_place(view: PoolView, task: int) -> Iterator[Place]:
    if not view.tasks.devices[task]:
        yield from (((), (node,)) for node in range(len(view.pool.node_names)))
    for devices in itertools.combinations(range(len(view.free)), int(view.tasks.devices[task])):
        nodes = tuple(sorted({int(view.pool.device_node[d]) for d in devices}))
        if devices and len(nodes) <= view.tasks.max_nodes[task]:
            yield devices, nodes


def place_of(placement: Placement) -> Place:
    return tuple(placement.devices.tolist()), tuple(placement.nodes.tolist())


def choices(view: PoolView) -> Iterator[tuple[Place, float, dict[Place, float]]]:
    """Of each task placed where it is, the sum of speeds then, and that of everywhere it could be."""
    where: dict[int, Place] = {}
    for placement in BestResponse().place(view, view.pending, strict=False):
        task = placement.task
        could = {place: {**where, task: place} for place in every_place(view, task)}
        sums = {place: all_speeds(view, then) for place, then in could.items() if fits(view, then)}
        where[task] = place_of(placement)
        yield where[task], sums[where[task]], sums


@settings(max_examples=60, deadline=None)
@given(instants(undivided=True))
def test_on_one_node_no_place_leaves_all_tasks_faster(view: PoolView) -> None:
    for _, here, sums in choices(view):
        assert here == pytest.approx(max(sums.values()))


@settings(max_examples=60, deadline=None)
@given(instants(undivided=False))
def test_over_several_nodes_they_are_fewest_and_none_is_exchanged_for_the_better(view: PoolView) -> None:
    for (_, nodes), here, sums in choices(view):
        fewest = min(len(others) for _, others in sums)
        assert len(nodes) == fewest
        beside = [t for (_, o), t in sums.items() if len(o) == fewest and len({*o} - {*nodes}) <= 1]
        assert here >= max(beside) - 1e-6


def with_running(view: PoolView, placed: Sequence[Placement]) -> PoolView:
    """The view once these run."""
    held_from = np.zeros(len(view.tasks) + 1, dtype=np.int32)
    task_node = view.task_node.copy()
    free, cpus, memory = view.free.copy(), view.free_cpus.copy(), view.free_memory_mb.copy()
    by_task = {one.task: one for one in placed}
    for task, one in by_task.items():
        held_from[task + 1] = len(one.devices)
        task_node[task] = one.nodes[0]
        free[one.devices] -= view.tasks.share[task]
        for node in one.nodes:
            of = max(int(view.tasks.devices[task]), 1)
            count = int((view.pool.device_node[one.devices] == node).sum()) if len(one.devices) else 1
            cpus[node] -= -(-int(view.tasks.cpus[task]) * count // of)
            memory[node] -= -(-int(view.tasks.memory_mb[task]) * count // of)
    held = [by_task[task].devices for task in sorted(by_task)]
    return replace(
        view,
        running=np.array(sorted(by_task), dtype=np.int32),
        pending=np.array([t for t in view.pending if t not in by_task], dtype=np.int32),
        held_from=np.cumsum(held_from).astype(np.int32),
        held=np.concatenate([np.zeros(0, dtype=np.int32), *held]),
        task_node=task_node,
        free=free,
        free_cpus=cpus,
        free_memory_mb=memory,
    )


@settings(max_examples=60, deadline=None)
@given(instants(undivided=False), st.integers(0, 4))
def test_neighbours_that_run_count_as_those_just_placed(view: PoolView, count: int) -> None:
    placed = BestResponse().place(view, view.pending, strict=False)
    later = with_running(view, placed[:count])
    again = BestResponse().place(later, later.pending, strict=False)
    assert {one.task: place_of(one) for one in again} == {one.task: place_of(one) for one in placed[count:]}


def test_it_evades_a_neighbour_that_it_would_slow_down_though_it_would_not_suffer_itself() -> None:
    """Next to the first the second keeps 0.9 of its speed, but takes half of the other's; a second node is
    free."""
    tasks, pool = task_table([1.0, 1.0]), plain_pool(2, 2)
    view = empty_view(tasks, pool, np.arange(2, dtype=np.int32))
    row = np.array([0, 1], dtype=np.int32)[:, None, None].repeat(2, axis=1)
    speeds = SpeedTable(row, np.ones(2), np.array([[1.0, 0.5], [0.9, 1.0]]))
    first, second = BestResponse().place(replace(view, speeds=speeds), view.pending, strict=False)
    assert (first.nodes.tolist(), second.nodes.tolist()) == ([0], [1])
    first, second = BestResponse().place(view, view.pending, strict=False)
    assert (first.nodes.tolist(), second.nodes.tolist()) == ([0], [0])


def test_it_bears_a_neighbour_where_going_elsewhere_costs_more() -> None:
    """The second node is of a kind that runs at 0.4 of the speed: less than 0.9 - 0.3."""
    tasks, pool = task_table([1.0, 1.0]), made_pool([[0, 0], [1, 1]], [9, 9], [9, 9])
    view = empty_view(tasks, pool, np.arange(2, dtype=np.int32))
    row = np.array([[[0], [2]], [[1], [2]]], dtype=np.int32)
    together = np.array([[1.0, 0.7, 1.0], [0.9, 1.0, 1.0], [1.0, 1.0, 1.0]])
    speeds = SpeedTable(row, np.array([1.0, 1.0, 0.4]), together)
    first, second = BestResponse().place(replace(view, speeds=speeds), view.pending, strict=False)
    assert (first.nodes.tolist(), second.nodes.tolist()) == ([0], [0])


class Checked:
    """Looks whether what is free and who runs add up to the pool, in every view that the placement policy is
    shown."""

    name = "checked"

    def __init__(self) -> None:
        self._inner = BestResponse()

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        held, cpus = np.zeros(len(view.free)), np.zeros(len(view.free_cpus), dtype=int)
        for task in view.running.tolist():
            devices = view.held[view.held_from[task] : view.held_from[task + 1]]
            nodes, counts = np.unique(view.pool.device_node[devices], return_counts=True)
            if not len(devices):
                nodes, counts = np.array([view.task_node[task]]), np.array([1])
            assert view.task_node[task] == nodes[0]
            held[devices] += view.tasks.share[task]
            cpus[nodes] += -(-int(view.tasks.cpus[task]) * counts // max(int(view.tasks.devices[task]), 1))
        assert held + view.free == pytest.approx(1.0)
        assert (cpus + view.free_cpus).tolist() == view.pool.cpus.tolist()
        return self._inner.place(view, order, strict=strict)


@settings(max_examples=60)
@given(st.data(), st.booleans(), st.booleans())
def test_with_preemption_it_sees_those_who_would_be_there_and_nobody_else(
    data: st.DataObject, move: bool, strict: bool
) -> None:
    pool = data.draw(pools())
    tasks = data.draw(tables(pool))
    world = SimulatedPool(
        tasks, pool, data.draw(speed_tables(tasks, pool)), DispatchRules(strict, preempt=True, move=move)
    )
    assert np.isfinite(world.play(ShortestFirst(), Checked()).end).all()


def test_a_task_takes_the_place_of_the_neighbour_that_would_disturb_it() -> None:
    """Both nodes are held. The task on the second goes: the newcomer does not count it as a neighbour there."""
    tasks = task_table(
        [9.0, 8.0, 1.0], [0.0, 0.0, 1.0], devices=[2, 2, 2], restart=np.array([np.nan, 0.0, np.nan])
    )
    pool = plain_pool(2, 2)
    row = np.array([0, 1, 2], dtype=np.int32)[:, None, None].repeat(2, axis=1)
    together = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.1], [1.0, 0.1, 1.0]])
    world = SimulatedPool(tasks, pool, SpeedTable(row, np.ones(3), together), DispatchRules(preempt=True))
    assert world.play(ShortestFirst(), BestResponse()).end.tolist() == [9.0, 9.0, 2.0]

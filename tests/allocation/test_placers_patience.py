"""Placement policies that wait: no task is spread without need or waits indefinitely; compiled runs are
the plain ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_strategies import one_speed, plain_pool, pools, speed_tables, tables, task_table

from mirage.allocation.ddl.packing import empty_view
from mirage.allocation.ddl.registry import UnknownPolicy, placer
from mirage.allocation.ddl.scored_orderings import ShortestFirst
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.ddl.outcome import TaskRunResult
    from mirage.domain.pool import Placement, Pool, PoolView, TaskTable


class Plain:
    """A placement policy that the simulation knows nothing of but its port."""

    def __init__(self, name: str) -> None:
        self.name, self._inner = name, placer(name)

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        return self._inner.place(view, order, strict=strict)


def fewest(tasks: TaskTable, pool: Pool, task: int) -> int:
    """On how few nodes of the empty pool the task fits: the roomiest nodes first, counted in plain Python."""
    of = max(int(tasks.devices[task]), 1)
    rooms = []
    for node in range(len(pool.node_names)):
        kinds = pool.device_kind[pool.device_node == node]
        room = sum(int(tasks.kinds[task]) >> int(kind) & 1 for kind in kinds) if tasks.devices[task] else 1
        room = min(room, of)
        while room and (
            -(-int(tasks.cpus[task]) * room // of) > pool.cpus[node]
            or -(-int(tasks.memory_mb[task]) * room // of) > pool.memory_mb[node]
        ):
            room -= 1
        rooms.append(room)
    return int(np.searchsorted(np.cumsum(sorted(rooms, reverse=True)), of)) + 1


def nodes_used(found: TaskRunResult) -> list[set[int]]:
    """The nodes that each task ever was on at one time: without preemption, on which it was."""
    used: list[set[int]] = [set() for _ in range(len(found.tasks))]
    for task, device in zip(found.segments.task, found.segments.device, strict=True):
        used[task].add(int(found.pool.device_node[device]))
    return used


@st.composite
def worlds(draw: st.DrawFn, *, preempt: bool) -> SimulatedPool:
    pool = draw(pools())
    tasks = draw(tables(pool))
    rules = DispatchRules(preempt=preempt, strict=draw(st.booleans()))
    return SimulatedPool(tasks, pool, draw(speed_tables(tasks, pool)), rules)


@settings(max_examples=60)
@given(worlds(preempt=False), st.sampled_from(("best-fit", "consolidate", "interference")))
def test_nobody_is_on_more_nodes_than_he_needs_and_all_are_run(world: SimulatedPool, name: str) -> None:
    found = world.play(ShortestFirst(), placer(f"patient:{name}"))
    assert np.isfinite(found.end).all()
    for task, nodes in enumerate(nodes_used(found)):
        assert len(nodes) <= fewest(world.tasks, world.pool, task)


@settings(max_examples=60)
@given(
    st.booleans().flatmap(lambda preempt: worlds(preempt=preempt)), st.sampled_from(("best-fit", "load-balance"))
)
def test_a_compiled_run_is_the_run_decision_by_decision(world: SimulatedPool, name: str) -> None:
    plain = world.copy().play(ShortestFirst(), Plain(f"patient:{name}"))
    found = world.play(ShortestFirst(), placer(f"patient:{name}"))
    assert found.end.tolist() == plain.end.tolist()
    assert found.fee.tolist() == pytest.approx(plain.fee.tolist())


@pytest.mark.parametrize("name", ["best-fit", "interference"])
def test_two_halves_do_not_make_a_node_while_something_runs(name: str) -> None:
    """Two short tasks hold half of each node; a third, which could start spread, waits for a whole node."""
    tasks = task_table([4.0, 6.0, 5.0], [0.0, 0.0, 1.0], [1, 1, 2], max_nodes=np.array([1, 1, 2], dtype=np.int32))
    pool = plain_pool(2, 2)
    apart = DispatchRules()
    hasty = SimulatedPool(tasks, pool, one_speed(tasks, pool), apart).play(ShortestFirst(), placer("load-balance"))
    assert hasty.start.tolist() == [0.0, 0.0, 1.0]
    found = SimulatedPool(tasks, pool, one_speed(tasks, pool), apart).play(
        ShortestFirst(), placer("patient:load-balance")
    )
    assert found.start.tolist() == [0.0, 0.0, 4.0]
    assert placer(f"patient:{name}").name == f"patient:{name}"


@pytest.mark.parametrize("name", ["best-fit", "interference"])
def test_where_a_node_is_down_the_idle_pool_takes_what_fits_at_all(name: str) -> None:
    """The first node is down, two devices are free on each other node: no task waits for the first node."""
    tasks = task_table([1.0, 1.0], devices=[4, 4], max_nodes=np.array([2, 2], dtype=np.int32))
    pool = replace(plain_pool(3, 4))
    view = empty_view(tasks, pool, np.arange(2, dtype=np.int32))
    free = view.free.copy()
    free[:4], free[6:8], free[10:12] = 0.0, 0.0, 0.0
    (placed,) = placer(f"patient:{name}").place(replace(view, free=free), view.pending, strict=False)
    assert (placed.task, placed.devices.tolist()) == (0, [4, 5, 8, 9])
    busy = replace(view, free=free, running=np.array([1], dtype=np.int32), pending=view.pending[:1])
    assert placer(f"patient:{name}").place(busy, busy.pending, strict=False) == ()


def test_a_placer_that_there_is_not_is_named() -> None:
    with pytest.raises(UnknownPolicy, match="'bestfit'"):
        placer("patient:bestfit")

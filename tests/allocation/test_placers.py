"""The built-in placement policies: what they place fits, and is where their rule says, by plain Python over
small pools."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_strategies import made_pool, pools, tables, task_table
from scipy.optimize import linprog

from mirage.allocation.ddl.encode import encode_site
from mirage.allocation.ddl.kernel.placing_fragments import GRID
from mirage.allocation.ddl.packing import empty_view
from mirage.allocation.ddl.placers import CODES, CompiledPlacer, cutting_prices, usual_types
from mirage.allocation.ddl.registry import placer

if TYPE_CHECKING:
    from mirage.domain.pool import Placement, Pool, PoolView, TaskTable

EVERYTHING = 2**64 - 1


def part(total: int, count: int, of: int) -> int:
    return total if of == 0 else -(-total * count // of)


def fits(view: PoolView, task: int, device: int) -> bool:
    allowed = int(view.tasks.kinds[task]) >> int(view.pool.device_kind[device]) & 1
    return bool(allowed) and view.free[device] >= view.tasks.share[task] - 1e-9


def room(view: PoolView, task: int, node: int) -> int:
    """How many of the task's devices the node has room for."""
    tasks, of = view.tasks, int(view.tasks.devices[task])
    devices = [d for d in np.flatnonzero(view.pool.device_node == node) if fits(view, task, int(d))]
    for count in range(min(len(devices), of), -1, -1):
        enough = part(int(tasks.cpus[task]), count, of) <= view.free_cpus[node]
        if enough and part(int(tasks.memory_mb[task]), count, of) <= view.free_memory_mb[node]:
            return count
    return 0


def take(view: PoolView, placement: Placement) -> None:
    """Check the placement against what is free, and take it."""
    tasks, task = view.tasks, placement.task
    of = int(tasks.devices[task])
    assert len(set(placement.devices.tolist())) == len(placement.devices) == of
    assert placement.devices.tolist() == sorted(placement.devices.tolist())
    assert all(fits(view, task, int(d)) for d in placement.devices)
    view.free[placement.devices] -= tasks.share[task]
    nodes, counts = np.unique(view.pool.device_node[placement.devices], return_counts=True)
    if of:
        assert placement.nodes.tolist() == nodes.tolist()
    for node, count in zip(placement.nodes, counts if of else [0], strict=True):
        view.free_cpus[node] -= part(int(tasks.cpus[task]), int(count), of)
        view.free_memory_mb[node] -= part(int(tasks.memory_mb[task]), int(count), of)
        assert view.free_cpus[node] >= 0
        assert view.free_memory_mb[node] >= 0
    assert len(placement.nodes) <= max(int(tasks.max_nodes[task]), 1)


def copied(view: PoolView) -> PoolView:
    return replace(
        view,
        free=view.free.copy(),
        free_cpus=view.free_cpus.copy(),
        free_memory_mb=view.free_memory_mb.copy(),
    )


@st.composite
def instants(draw: st.DrawFn) -> PoolView:
    """Tasks before a pool of which parts are gone."""
    pool = draw(pools())
    tasks = draw(tables(pool))
    view = copied(empty_view(tasks, pool, np.arange(len(tasks), dtype=np.int32)))
    for device in range(len(view.free)):
        view.free[device] = draw(st.sampled_from((1.0, 1.0, 0.75, 0.5, 0.0)))
    for node in range(len(pool.node_names)):
        view.free_cpus[node] -= draw(st.integers(0, 2))
    return view


@pytest.mark.parametrize("name", [*CODES, "interference"])
@settings(max_examples=40)
@given(instants())
def test_what_is_placed_fits_and_what_is_not_does_not(name: str, view: PoolView) -> None:
    before = copied(view)
    placed = placer(name).place(view, view.pending, strict=False)
    assert (view.free == before.free).all()
    for placement in placed:
        take(before, placement)
    for task in set(view.pending.tolist()) - {placement.task for placement in placed}:
        of, nodes = int(view.tasks.devices[task]), range(len(view.pool.node_names))
        if of:
            most = sorted((room(before, task, node) for node in nodes), reverse=True)
            assert sum(most[: view.tasks.max_nodes[task]]) < of
        else:
            lacking = [before.free_cpus[n] < view.tasks.cpus[task] for n in nodes]
            short = [before.free_memory_mb[n] < view.tasks.memory_mb[task] for n in nodes]
            assert all(a or b for a, b in zip(lacking, short, strict=True))


def one_by_one(name: str, view: PoolView) -> list[tuple[PoolView, Placement]]:
    """Every placement, and what was free before it."""
    told, now = [], copied(view)
    for placement in CompiledPlacer(name).place(view, view.pending, strict=False):
        told.append((copied(now), placement))
        take(now, placement)
    return told


def whole_nodes(view: PoolView, task: int) -> list[int]:
    """The nodes with room for all of a task with devices."""
    of = int(view.tasks.devices[task])
    return [node for node in range(len(view.pool.node_names)) if room(view, task, node) >= of]


def free_on(view: PoolView, node: int) -> float:
    return float(view.free[view.pool.device_node == node].sum())


@settings(max_examples=60)
@given(instants())
def test_best_fit_takes_the_node_with_least_and_the_fullest_device(view: PoolView) -> None:
    for now, placement in one_by_one("best-fit", view):
        task, (node, *more) = placement.task, placement.nodes.tolist()
        nodes = whole_nodes(now, task) if view.tasks.devices[task] else []
        if not nodes:
            continue
        assert not more
        assert node == min(nodes, key=lambda n: (free_on(now, n), n))
        if view.tasks.share[task] < 1:
            suited = [d for d in np.flatnonzero(view.pool.device_node == node) if fits(now, task, int(d))]
            assert placement.devices[0] == min(suited, key=lambda d: (now.free[d], d))


@settings(max_examples=60)
@given(instants())
def test_load_balance_takes_the_node_with_the_largest_free_part(view: PoolView) -> None:
    for now, placement in one_by_one("load-balance", view):
        if len(placement.devices) and len(placement.nodes) == 1:
            part_free = {
                n: free_on(now, n) / np.count_nonzero(view.pool.device_node == n)
                for n in whole_nodes(now, placement.task)
            }
            assert part_free[int(placement.nodes[0])] == pytest.approx(max(part_free.values()))


def plain_fragments(view: PoolView, free: np.ndarray, cpus: int, node: int) -> float:
    """Section 4 of the paper: for each type of task what of the node's free devices it cannot use."""
    devices = np.flatnonzero(view.pool.device_node == node)
    total, expected = float(free[devices].sum()), 0.0
    for usual in usual_types(encode_site(view.tasks, view.pool)):
        usable = [
            d
            for d in devices
            if int(usual["kinds"]) >> int(view.pool.device_kind[d]) & 1 and free[d] >= usual["share"] - 1e-9
        ]
        hosts = usual["devices"] > 0 and len(usable) >= usual["devices"] and usual["cpus"] <= cpus
        expected += usual["weight"] * (total - float(free[usable].sum()) if hosts else total)
    return expected


def plain_steps(view: PoolView, task: int, devices: list[int], node: int) -> int:
    free, cpus = view.free.copy(), int(view.free_cpus[node])
    before = plain_fragments(view, free, cpus, node)
    free[devices] -= view.tasks.share[task]
    grown = plain_fragments(view, free, cpus - int(view.tasks.cpus[task]), node) - before
    return math.floor(100 / (1 + math.exp(grown)) + 1e-9)


@settings(max_examples=60)
@given(instants())
def test_fgd_goes_where_the_fragments_of_the_definition_grow_least(view: PoolView) -> None:
    for now, placement in one_by_one("fgd", view):
        task, of = placement.task, int(view.tasks.devices[placement.task])
        if len(placement.nodes) > 1:
            continue
        steps: dict[tuple[int, ...], int] = {}
        nodes = whole_nodes(now, task) if of else [int(placement.nodes[0])]
        for node in nodes:
            suited = [int(d) for d in np.flatnonzero(view.pool.device_node == node) if fits(now, task, int(d))]
            choices = [[d] for d in suited] if view.tasks.share[task] < 1 and of == 1 else [suited[:of]]
            for devices in choices:
                steps[(node, *devices)] = plain_steps(now, task, devices, node)
        assert steps[(int(placement.nodes[0]), *placement.devices.tolist())] == max(steps.values())


def placed_by(name: str, view: PoolView, count: int) -> dict[int, list[int]]:
    """The outcome of the first tasks of the table."""
    placed = CompiledPlacer(name).place(view, np.arange(count, dtype=np.int32), strict=False)
    return {placement.task: placement.nodes.tolist() for placement in placed}


def test_foresight_keeps_processors_for_devices_where_fragments_are_equal() -> None:
    """A task of 8 CPUs alone, before nine of one device and 4 CPUs: 4 for each device.

    A node of 4 devices and 16 CPUs can spare none: 8 less strand 4 - 8 / 4 = 2 devices there. No task of the
    mix is excluded immediately, so FGD rates it like the node of 64, and it takes the first.
    """
    alone = [0] + [1] * 9
    tasks = task_table([1.0] * 10, devices=alone, cpus=np.array([8] + [4] * 9, dtype=np.int32))
    pool = made_pool([[0] * 4, [0] * 4], [16, 64], [100, 100])
    view = empty_view(tasks, pool, np.arange(10, dtype=np.int32))
    fgd, ahead = placed_by("fgd", view, 10), placed_by("foresight", view, 10)
    assert (fgd[0], len(fgd)) == ([0], 1 + 2 + 4)
    assert (ahead[0], len(ahead)) == ([1], 1 + 4 + 4)


def test_foresight_keeps_the_rest_of_a_shared_device_for_what_fills_it() -> None:
    """Shares of 0.4, 0.6, 0.6 and 0.6 are cut out of three devices: each 0.6 costs one, the 0.4 nothing.

    So what 0.6 is left of one device is worth a whole one, and 0.4 belongs on the empty device, where 0.6 stay. To
    FGD that spoils a device for the whole ones of the mix (3 of 7: fragments grow by 0.6 * 3/7), and filling
    up the broken one is a gain (0.2 - 0.6 * 3/7 < 0): the second 0.6 then finds no place.
    """
    shares = np.array([0.4, 0.6, 0.6, 0.6, 1.0, 1.0, 1.0])
    tasks = task_table([1.0] * 7, share=shares)
    view = copied(empty_view(tasks, made_pool([[0], [0]], [64, 64], [100, 100]), np.arange(7, dtype=np.int32)))
    view.free[1] = 0.6
    assert placed_by("fgd", view, 3) == {0: [1], 1: [0]}
    ahead = placed_by("foresight", view, 3)
    assert (ahead[0], sorted(ahead[1] + ahead[2])) == ([0], [0, 1])
    assert cutting_prices(np.array([400, 600]), np.array([1, 3])) == pytest.approx([0.0, 1.0])


def islands_pool(switches: list[int], islands: list[list[int]]) -> Pool:
    pool = made_pool([[0] * len(one) for one in islands], [64] * len(islands), [1 << 20] * len(islands))
    return replace(
        pool,
        switch=np.array(switches, dtype=np.int32),
        island=np.array([island for one in islands for island in one], dtype=np.int32),
    )


def consolidated(pool: Pool, devices: int, held: list[int]) -> Placement:
    tasks = task_table([1.0], devices=[devices], max_nodes=np.array([9], dtype=np.int32))
    view = copied(empty_view(tasks, pool, np.zeros(1, dtype=np.int32)))
    view.free[held] = 0.0
    (placement,) = CompiledPlacer("consolidate").place(view, view.pending, strict=False)
    return placement


@settings(max_examples=80)
@given(st.data())
def test_consolidate_takes_fewest_nodes_then_one_switch_or_fewest_islands(data: st.DataObject) -> None:
    islands = [[4 * n + data.draw(st.integers(0, 2)) for _ in range(4)] for n in range(5)]
    switches = data.draw(st.lists(st.integers(0, 1), min_size=5, max_size=5))
    held = sorted(data.draw(st.sets(st.integers(0, 19), max_size=9)))
    pool, wanted = islands_pool(switches, islands), data.draw(st.integers(1, 9))
    placement = consolidated(pool, wanted, held)
    free = [[d for d in range(4 * n, 4 * n + 4) if d not in held] for n in range(5)]

    def enough(nodes: tuple[int, ...]) -> bool:
        return sum(len(free[n]) for n in nodes) >= wanted

    fewest = next(k for k in range(1, 6) if any(enough(c) for c in itertools.combinations(range(5), k)))
    assert len(placement.nodes) == fewest
    same = [
        c for c in itertools.combinations(range(5), fewest) if enough(c) and len({switches[n] for n in c}) == 1
    ]
    assert not same or len({switches[n] for n in placement.nodes}) == 1
    if fewest == 1:
        counts = [
            len({int(pool.island[d]) for d in chosen})
            for n in range(5)
            for chosen in itertools.combinations(free[n], wanted)
        ]
        assert len(set(pool.island[placement.devices].tolist())) == min(counts)


def test_random_is_the_same_again_and_scatters_tasks_over_nodes() -> None:
    tasks: TaskTable = task_table([1.0] * 60)
    view = empty_view(tasks, made_pool([[0] * 8] * 16, [64] * 16, [100] * 16), np.arange(60, dtype=np.int32))
    first, again = (CompiledPlacer("random").place(view, view.pending, strict=False) for _ in range(2))
    nodes = [int(placement.nodes[0]) for placement in first]
    assert nodes == [int(placement.nodes[0]) for placement in again]
    assert len(set(nodes)) > 12


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(150, 999), st.integers(1, 50)), min_size=1, max_size=6, unique_by=lambda x: x[0]
    )
)
def test_prices_are_the_dual_of_cutting_out_of_as_few_devices_as_possible(mix: list[tuple[int, int]]) -> None:
    mix.sort()
    sizes, counts = (np.array(column, dtype=np.int64) for column in zip(*mix, strict=True))
    ways = itertools.product(*(range(GRID // int(size) + 1) for size in sizes))
    patterns = np.array([way for way in ways if 0 < np.dot(way, sizes) <= GRID])
    fewest = linprog(np.ones(len(patterns)), A_ub=-patterns.T, b_ub=-counts, method="highs").fun
    prices = cutting_prices(sizes, counts)
    assert float(counts @ prices) == pytest.approx(fewest)
    assert (patterns @ prices <= 1 + 1e-6).all()

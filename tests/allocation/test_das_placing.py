"""The agents' observations and the placement of tasks, against plain Python over objects."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from das_views import instant, pool_of

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.das.observation import TASK, Settling, sight_of, with_room
from mirage.allocation.ddl.formats.table import task_table
from mirage.allocation.ddl.kernel.das_seeing import NODE, PAIR, crowd_of, standing_of, utility_on
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool
from mirage.allocation.ddl.speeds import even_speeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import Placement, PoolView
    from mirage.ports import Placer

NEVER_WAIT = -np.inf


def nodes_of(view: PoolView, task: int) -> set[int]:
    return set(view.pool.device_node[view.held[view.held_from[task] : view.held_from[task + 1]]].tolist())


def plain_utility(view: PoolView, task: int, nodes: set[int]) -> float:
    """Minus the logarithm of what the placement costs by what running alone costs, from the definition."""
    speeds, tasks = view.speeds, view.tasks
    pressure = len(view.pending) / len(view.pool.device_node)

    def row(one: int, spread: int) -> int:
        return int(speeds.row[one, 0, min(spread, speeds.row.shape[2]) - 1])

    def weight(one: int) -> float:
        return float(1 + pressure * tasks.devices[one] * tasks.share[one])

    where = {one: nodes_of(view, one) for one in view.running.tolist()}
    mine = row(task, len(nodes))
    speed, met = speeds.alone[mine], [one for one in where if where[one] & nodes]
    for one in met:
        speed *= speeds.together[mine, row(one, len(where[one]))]
    time = view.remaining[task] / speed
    cost = weight(task) * time
    for one in met:
        theirs = row(one, len(where[one]))
        now = speeds.alone[theirs]
        for other, there in where.items():
            if other != one and there & where[one]:
                now *= speeds.together[theirs, row(other, len(there))]
        overlap = min(time, view.remaining[one] / now)
        cost += weight(one) * overlap * (1 / speeds.together[theirs, mine] - 1)
    return float(-np.log(cost / (weight(task) * view.remaining[task])))


@pytest.mark.parametrize("seed", range(6))
def test_utility_is_what_its_definition_says(seed: int) -> None:
    view = instant(seed, pool_of(3, 8), pending=5, running=8)
    standing = standing_of(view)
    crowd = crowd_of(standing)
    for task in view.pending.tolist():
        for size in (1, 2, 3):
            for nodes in itertools.combinations(range(3), size):
                found = utility_on(standing, crowd, task, np.array(nodes, dtype=np.int32), 0, size)[2]
                assert found == pytest.approx(plain_utility(view, task, set(nodes)))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("strict", [False, True])
def test_placements_are_feasible(seed: int, strict: bool) -> None:
    view = instant(seed, pool_of(4, 8, islands=2), pending=15, running=7)
    sight = sight_of(view)
    before = view.free.copy()
    rng = np.random.default_rng(seed)
    order = rng.permutation(sight.waiting)
    affinity = rng.normal(size=(len(order), 4))
    found = Settling(sight).add(order, affinity, np.full(len(order), NEVER_WAIT), strict=strict)
    free, cpus = view.free.copy(), view.free_cpus.copy()
    for placement in found:
        tasks, task = view.tasks, placement.task
        assert len(placement.devices) == tasks.devices[task]
        assert (np.diff(placement.devices) > 0).all()
        assert len(placement.nodes) <= tasks.max_nodes[task]
        assert set(placement.nodes) == set(view.pool.device_node[placement.devices])
        free[placement.devices] -= tasks.share[task]
        for node in placement.nodes:
            part = int((view.pool.device_node[placement.devices] == node).sum())
            cpus[node] -= -(-tasks.cpus[task] * part // tasks.devices[task])
    assert free.min() > -1e-9
    assert cpus.min() >= 0
    np.testing.assert_array_equal(view.free, before)
    started = [int(np.flatnonzero(sight.rows[order] == one.task)[0]) for one in found]
    assert started == sorted(started)
    if strict:
        assert started == list(range(len(started)))


@pytest.mark.parametrize("seed", range(10))
def test_a_task_of_one_node_goes_where_it_is_worth_most(seed: int) -> None:
    view = instant(seed, pool_of(4, 4), pending=1, running=6, widest=2)
    view = replace(view, tasks=replace(view.tasks, max_nodes=np.ones_like(view.tasks.max_nodes)))
    affinity = np.random.default_rng(seed).normal(size=(1, 4))
    sight = sight_of(view)
    task = int(view.pending[0])
    free_on = [
        int((view.free[view.pool.device_node == node] >= view.tasks.share[task] - 1e-9).sum()) for node in range(4)
    ]
    worth = {
        node: plain_utility(view, task, {node}) + affinity[0, node]
        for node in range(4)
        if free_on[node] >= view.tasks.devices[task]
    }
    found = Settling(sight).add(np.array([0]), affinity, np.array([NEVER_WAIT]))
    assert [one.nodes.tolist() for one in found] == ([[max(worth, key=worth.__getitem__)]] if worth else [])


def test_patience_lets_a_task_wait_but_never_an_idle_pool() -> None:
    wait = np.array([np.inf])
    busy = sight_of(instant(3, pool_of(4, 8), pending=1, running=2))
    assert Settling(busy).add(np.array([0]), np.zeros((1, 4)), wait) == ()
    idle = sight_of(instant(3, pool_of(4, 8), pending=1))
    assert len(Settling(idle).add(np.array([0]), np.zeros((1, 4)), wait)) == 1


def test_tasks_of_processors_alone_get_a_node() -> None:
    view = instant(0, pool_of(3, 2), pending=2)
    tasks = replace(view.tasks, devices=np.zeros_like(view.tasks.devices))
    found = Settling(sight_of(replace(view, tasks=tasks))).add(
        np.arange(2), np.zeros((2, 3)), np.full(2, NEVER_WAIT)
    )
    assert [(len(one.devices), len(one.nodes)) for one in found] == [(0, 1), (0, 1)]


def test_devices_are_of_one_island_where_one_has_room() -> None:
    view = instant(0, pool_of(1, 8, islands=2), pending=1)
    tasks = replace(view.tasks, devices=np.array([3], dtype=np.int32), share=np.ones(1))
    view = replace(view, tasks=tasks, free=np.array([0, 1, 1, 0, 1, 1, 1, 0], dtype=float))
    (found,) = Settling(sight_of(view)).add(np.array([0]), np.zeros((1, 1)), np.array([NEVER_WAIT]))
    assert found.devices.tolist() == [4, 5, 6]


def test_those_that_fit_are_found_in_order() -> None:
    view = instant(2, pool_of(2, 4), pending=12, running=2)
    sight = sight_of(view)
    order = np.arange(sight.waiting)[::-1]
    fitting = []
    for row in order:
        task = int(sight.rows[row])
        rooms = sorted(
            (
                min(int((view.free[view.pool.device_node == node] >= view.tasks.share[task] - 1e-9).sum()), 99)
                for node in range(2)
            ),
            reverse=True,
        )
        if sum(rooms[: view.tasks.max_nodes[task]]) >= view.tasks.devices[task]:
            fitting.append(row)
    assert with_room(sight, order, 99).tolist() == fitting
    assert with_room(sight, order, 2).tolist() == fitting[:2]


def test_features_are_finite_and_as_many_as_named() -> None:
    view = instant(5, pool_of(4, 8), pending=9, running=6)
    view = replace(view, remaining=np.where(np.arange(len(view.tasks)) % 3 == 0, np.nan, view.remaining))
    sight = sight_of(view)
    assert sight.task.shape == (len(sight.rows), len(TASK))
    assert sight.node.shape == (4, len(NODE))
    assert sight.pair.shape == (len(sight.rows), 4, len(PAIR))
    for array in (sight.task, sight.node, sight.pair, sight.base, sight.held, sight.felt):
        assert np.isfinite(array).all()
        assert np.abs(array).max(initial=0) < 25
    np.testing.assert_allclose(sight.held.sum(axis=1), 1)


def test_the_order_of_submission_moves_no_features() -> None:
    view = instant(6, pool_of(4, 8), pending=9, running=6)
    there = replace(view, pending=view.pending[::-1].copy())
    here, turned = sight_of(view), sight_of(there)
    np.testing.assert_allclose(turned.task[: here.waiting][::-1], here.task[: here.waiting], atol=1e-6)
    np.testing.assert_allclose(turned.pair[: here.waiting][::-1], here.pair[: here.waiting], atol=1e-6)


def test_nothing_pending_nothing_running_is_seen_too() -> None:
    sight = sight_of(instant(0, pool_of(2, 2), pending=1))
    assert len(sight.felt) == 0
    nothing = sight_of(instant(0, pool_of(2, 2), pending=0, running=1))
    assert nothing.waiting == 0


class Untaught:
    """Places as agents do that have learned nothing: by what placements cost."""

    name = "untaught"

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        sight, place_of = sight_of(view), {int(task): row for row, task in enumerate(view.pending)}
        rows = with_room(sight, np.array([place_of[int(task)] for task in order]), len(order))
        affinity = np.zeros((len(rows), len(view.pool.node_names)))
        return Settling(sight).add(rows, affinity, np.full(len(rows), -0.15), strict=strict)


@pytest.mark.parametrize("seed", range(4))
def test_agents_that_have_learnt_nothing_place_as_patient_best_fit_does(seed: int) -> None:
    rng, pool = np.random.default_rng(seed), pool_of(3, 4)
    tasks = task_table(
        tuple(f"t{number}" for number in range(40)),
        submit=np.sort(rng.uniform(0, 3000, 40)),
        devices=rng.integers(1, 5, 40).astype(np.int32),
        max_nodes=np.full(40, 3, dtype=np.int32),
        work=rng.lognormal(6, 1, 40),
    )

    def play(by: Placer) -> list[float]:
        world = SimulatedPool(tasks, pool, even_speeds(tasks, pool), DispatchRules())
        ends: list[float] = world.play(registry.ordering("sjf"), by).end.tolist()
        return ends

    assert play(Untaught()) == play(registry.placer("patient:best-fit"))
    assert play(Untaught()) != play(registry.placer("best-fit"))

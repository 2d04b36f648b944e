"""Searched orders: the coarse pool against the simulated one, small optima by trying everything."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_strategies import made_pool, one_speed, plain_pool, task_table

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.kernel.search import cost, starts_when_passing
from mirage.allocation.ddl.placers import CompiledPlacer
from mirage.allocation.ddl.search import GOALS, Effort, Searched, scratch_of, search, searched, stage_of
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.ddl.outcome import TaskRunResult
    from mirage.domain.pool import PoolView, TaskTable

BEST_FIT = CompiledPlacer("best-fit")


class Ranked:
    """Tasks by a place that is given."""

    name = "ranked"

    def __init__(self, order: NDArray[np.int64]) -> None:
        self._rank = np.argsort(order).astype(np.float64)

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        return self._rank

    def score(self, view: PoolView) -> NDArray[np.float64]:
        return self._rank[view.pending]


@st.composite
def worlds(draw: st.DrawFn, strict: bool) -> SimulatedPool:
    """Whole devices of one type; some tasks run already."""
    pool = plain_pool(draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    count = draw(st.integers(2, 9))
    nodes, on_node = len(pool.node_names), len(pool.device_node) // len(pool.node_names)
    spread = draw(st.lists(st.integers(1, nodes), min_size=count, max_size=count))
    tasks = task_table(
        draw(st.lists(st.integers(0, 12).map(float), min_size=count, max_size=count)),
        devices=[draw(st.integers(1, on_node * most)) for most in spread],
        max_nodes=np.array(spread, dtype=np.int32),
    )
    world = SimulatedPool(tasks, pool, one_speed(tasks, pool), DispatchRules(strict=strict))
    world.advance()
    for _ in range(draw(st.integers(0, 3))):
        view = world.view()
        for placement in BEST_FIT.place(view, view.pending[:1], strict=True):
            world.start(placement)
    return world


def _then_in(world: SimulatedPool, order: NDArray[np.int64]) -> TaskRunResult:
    """The run on from here by this order of those that wait."""
    others = np.setdiff1d(np.arange(len(world.tasks)), order)
    return world.copy().play(Ranked(np.concatenate([others, order])), BEST_FIT)


@settings(max_examples=200)
@given(worlds(strict=True), st.randoms(use_true_random=False))
def test_a_plan_costs_what_the_simulated_pool_says(world: SimulatedPool, random: object) -> None:
    view = world.view()
    scene = stage_of(view, view.pending)
    if not len(scene.waiting):
        return
    places = np.random.default_rng(random.getrandbits(32)).permutation(len(scene.waiting))  # type: ignore[attr-defined]
    played = _then_in(world, scene.waiting[places])
    stage, scratch = scene.stage, scratch_of(scene.stage)
    order = places + scene.running
    ends = played.end[scene.waiting]
    assert cost(stage, scratch, GOALS["jct"], order) == pytest.approx(ends.mean())
    assert cost(stage, scratch, GOALS["makespan"], order) == pytest.approx(ends.max())


@settings(max_examples=200)
@given(worlds(strict=False))
def test_starts_with_passing_are_those_of_the_simulated_pool(world: SimulatedPool) -> None:
    view = world.view()
    scene = stage_of(view, view.pending)
    order = np.arange(len(scene.waiting)) + scene.running
    starts = np.zeros(len(scene.stage.loads))
    starts_when_passing(scene.stage, scratch_of(scene.stage), order, order.copy(), starts)
    assert starts[order] == pytest.approx(_then_in(world, scene.waiting).start[scene.waiting])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("goal", ["jct", "makespan"])
@pytest.mark.parametrize("patient", [False, True])
def test_small_sets_are_solved(seed: int, goal: str, patient: bool) -> None:
    rng = np.random.default_rng(seed)
    work, devices = rng.integers(1, 30, 6).astype(float), rng.choice([1, 1, 2, 4, 8], 6)
    spread = np.where((devices == 8) | patient, 2, 1).astype(np.int32)
    placer = CompiledPlacer("best-fit", patient=patient)
    tasks, pool = task_table(work.tolist(), devices=devices.tolist(), max_nodes=spread), plain_pool(2, 4)
    world = SimulatedPool(tasks, pool, one_speed(tasks, pool), DispatchRules(strict=True))
    runs = [world.copy().play(Ranked(np.array(order)), placer).figures for order in permutations(range(6))]
    found = world.play(Searched(goal, Effort(tries=100), seed, patient=patient), placer).figures
    column = "mean_jct" if goal == "jct" else "makespan"
    assert getattr(found, column) == pytest.approx(min(getattr(run, column) for run in runs))


def _many(count: int, seed: int, submit: object = None) -> SimulatedPool:
    rng = np.random.default_rng(seed)
    devices = rng.choice([1, 1, 2, 4], count)
    tasks = task_table(rng.lognormal(5, 1.5, count), submit=submit, devices=devices)  # type: ignore[arg-type]
    pool = plain_pool(2, 4)
    return SimulatedPool(tasks, pool, one_speed(tasks, pool), DispatchRules(strict=True))


def test_a_search_is_never_worse_than_shortest_first_and_the_same_for_one_seed() -> None:
    for seed in range(5):
        world = _many(40, seed)
        runs = [world.copy().play(Searched(seed=1), BEST_FIT).figures.mean_jct for _ in range(2)]
        plain = world.copy().play(registry.ordering("sjf"), BEST_FIT).figures.mean_jct
        assert runs[0] == runs[1]
        assert runs[0] < plain


def test_a_search_ends_with_its_seconds() -> None:
    view = _ready(_many(30, 0)).view()
    scene = stage_of(view, view.pending)
    rng = np.random.default_rng(0)
    plan = search(scene.stage, 0, GOALS["jct"], Effort(tries=10**9, seconds=0.2), rng)
    assert plan.tried < 10**9 * 30
    assert sorted(plan.order) == list(range(30))


def _ready(world: SimulatedPool) -> SimulatedPool:
    assert world.advance()
    return world


def test_tasks_that_come_later_are_planned_when_they_come() -> None:
    submit = np.sort(np.random.default_rng(3).uniform(0, 900, 40))
    world = _many(40, 3, submit)
    found = world.copy().play(Searched(), BEST_FIT).figures
    assert found.ended == 40
    assert found.mean_jct < world.copy().play(registry.ordering("fifo"), BEST_FIT).figures.mean_jct


def test_what_is_not_known_is_guessed_and_all_tasks_end() -> None:
    world = _many(20, 5)
    for expected in (np.where(np.arange(20) % 2, world.tasks.expected, np.nan), np.full(20, np.nan)):
        tasks = replace(world.tasks, expected=expected, restart=np.full(20, 1.0))
        for rules in (DispatchRules(strict=True), DispatchRules(preempt=True)):
            blind = SimulatedPool(tasks, world.pool, world.speeds, rules)
            assert blind.play(Searched(), BEST_FIT).figures.ended == 20


def test_tasks_without_devices_come_first_and_those_that_cannot_run_now_last() -> None:
    tasks = task_table([5.0, 5.0, 5.0], devices=[2, 0, 1])
    pool = made_pool([[0, 0], [0]], [4, 4], [10, 10])
    world = _ready(SimulatedPool(tasks, pool, one_speed(tasks, pool), DispatchRules(strict=True)))
    down = np.array([0.0, 0.0, 1.0])
    assert Searched().score(replace(world.view(), free=down)).tolist() == [3.0, -1.0, 0.0]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("goal=fun", "goal must be one of jct, makespan, not 'fun'"),
        ("tries=-1", "tries must be an integer, not '-1'"),
        ("seconds=soon", "seconds must be a number above 0, not 'soon'"),
        ("speed=9", r"unknown option 'speed' \(choose from goal, tries, seconds, seed, nodes"),
        ("tries=5:goal=jct:tries=9", "tries is given twice; name each option once"),
        ("nodes=2", "nodes must be any or fewest, not '2'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        searched(options)


def test_options_are_those_that_are_written() -> None:
    world = _many(15, 2)
    written = registry.ordering("searched:goal=makespan:tries=50:seed=4:nodes=fewest")
    same = Searched("makespan", Effort(tries=50), 4, patient=True)
    assert np.array_equal(world.copy().play(written, BEST_FIT).end, world.copy().play(same, BEST_FIT).end)

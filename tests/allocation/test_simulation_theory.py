"""The simulated pool against what is proven of such pools."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_strategies import one_speed, plain_pool, task_table

from mirage.allocation.ddl.encode import LinearScores
from mirage.allocation.ddl.placers import CompiledPlacer
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.ddl.outcome import TaskRunResult
    from mirage.domain.pool import PoolView, TaskTable

WORK = st.lists(st.integers(1, 30), min_size=1, max_size=6)


class Fixed:
    """Tasks by scores that are given."""

    name = "fixed"

    def __init__(self, scores: NDArray[np.float64]) -> None:
        self._scores = scores

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        return self._scores

    def score(self, view: PoolView) -> NDArray[np.float64]:
        return self._scores[view.pending]


class LeastRemaining:
    """Shortest remaining processing time first (SRPT)."""

    name = "srpt"

    def static_scores(self, tasks: TaskTable) -> None:
        return None

    def linear_scores(self, tasks: TaskTable) -> LinearScores:
        none = np.zeros(len(tasks))
        return LinearScores(none, none + 1.0, none)

    def score(self, view: PoolView) -> NDArray[np.float64]:
        return view.remaining[view.pending]


def play(
    tasks: TaskTable, devices: int, ordering: Fixed | LeastRemaining, *, preempt: bool = False
) -> TaskRunResult:
    pool = plain_pool(1, devices)
    world = SimulatedPool(tasks, pool, one_speed(tasks, pool), DispatchRules(preempt=preempt))
    return world.play(ordering, CompiledPlacer("first-fit"))


def test_a_single_device_first_come_first_served_is_the_queue_m_m_1() -> None:
    """Mean time in the system 1 / (mu - lambda); the mean of 200,000 in a row is within a few per cent of it."""
    rng, count, arrivals, services = np.random.default_rng(7), 200_000, 0.7, 1.0
    tasks = task_table(
        rng.exponential(1 / services, count).tolist(),
        submit=np.cumsum(rng.exponential(1 / arrivals, count)).tolist(),
    )
    found = play(tasks, 1, Fixed(tasks.submit))
    assert found.jct.mean() == pytest.approx(1 / (services - arrivals), rel=0.05)
    assert found.figures.utilisation == pytest.approx(arrivals / services, rel=0.02)


@given(WORK, st.data())
def test_no_order_has_a_lower_mean_on_one_device_than_shortest_remaining_first(
    work: list[int], data: st.DataObject
) -> None:
    submit = data.draw(st.lists(st.integers(0, 20), min_size=len(work), max_size=len(work)))
    tasks = task_table(work, submit=submit, restart=np.zeros(len(work)))
    best = play(tasks, 1, LeastRemaining(), preempt=True).jct.mean()
    orders = [np.array(order, dtype=np.float64) for order in permutations(range(len(work)))][:150]
    preemptive = [play(tasks, 1, Fixed(order), preempt=True).jct.mean() for order in orders]
    assert best <= min(preemptive) + 1e-9
    if len(orders) < 150:
        # Preemptive priorities by order of end are the best there is, so that some order is as good.
        assert best == pytest.approx(min(preemptive))


@given(WORK, st.integers(1, 3), st.data())
def test_no_list_is_longer_than_twice_the_optimum_less_one_mth(
    work: list[int], devices: int, data: st.DataObject
) -> None:
    """Graham, "Bounds for certain multiprocessing anomalies", 1966: makespan <= (2 - 1/m) x optimum."""
    order = data.draw(st.permutations(range(len(work))))
    tasks = task_table(work)
    found = play(tasks, devices, Fixed(np.array(order, dtype=np.float64))).figures.makespan
    best = _optimum(work, devices)
    assert best <= found <= (2 - 1 / devices) * best + 1e-9


def _optimum(work: list[int], devices: int) -> int:
    """The least makespan of independent tasks: every way of dealing them out."""
    loads = {(0,) * devices}
    for seconds in work:
        loads = {
            tuple(sorted((*load[:i], load[i] + seconds, *load[i + 1 :]))) for load in loads for i in range(devices)
        }
    return min(max(load) for load in loads)


def test_finish_time_fairness_is_one_where_each_has_its_share_alone() -> None:
    """Two tasks on two devices, each on one for all its life: neither gains nor loses by the other."""
    found = play(task_table([50.0, 50.0]), 2, Fixed(np.zeros(2)))
    assert found.fairness.tolist() == [1.0, 1.0]
    # One device: a half of it each would take 100 s; the first has all of it immediately, the second waits.
    found = play(task_table([50.0, 50.0]), 1, Fixed(np.array([0.0, 1.0])))
    assert found.fairness.tolist() == [50 / (50 * 2), 100 / (50 * 1.5)]


def test_figures_are_what_they_say() -> None:
    tasks = task_table([10.0, 30.0, 20.0], submit=[0.0, 0.0, 5.0], devices=[1, 2, 1])
    found = play(tasks, 2, Fixed(np.array([0.0, 1.0, 2.0])))
    # The first and the third side by side (0-10, 5-25), then the second on both (25-55).
    figures = found.figures
    assert found.end.tolist() == [10.0, 55.0, 25.0]
    assert figures.mean_jct == pytest.approx((10 + 55 + 20) / 3)
    assert figures.makespan == 55.0
    assert figures.utilisation == pytest.approx((10 + 60 + 20) / (2 * 55))
    assert figures.fee == pytest.approx((10 + 60 + 20) / 3600)
    assert figures.fragmentation == pytest.approx((1 * 5 + 0 * 5 + 1 * 15) / (2 * 25))

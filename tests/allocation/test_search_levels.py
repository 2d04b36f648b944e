"""Orders on Muri's traces (8 x 8), held to what is published and to a bound that no schedule is below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pool_strategies import one_speed

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.formats.readers import parse_pool
from mirage.allocation.ddl.formats.traces import read_muri
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.outcome import TaskRunFigures
    from mirage.domain.pool import TaskTable

pytestmark = pytest.mark.shared


def play(shared: Path, trace: str, ordering: str, rules: DispatchRules) -> tuple[TaskTable, TaskRunFigures]:
    pool = parse_pool("8x8")
    tasks = read_muri(shared / "yardsticks" / "muri" / f"{trace}.csv", pool).tasks
    world = SimulatedPool(tasks, pool, one_speed(tasks, pool), rules)
    return tasks, world.play(registry.ordering(ordering), registry.placer("best-fit")).figures


def least_mean_jct(tasks: TaskTable, devices: int) -> float:
    """No schedule is below, with preemption or without, of tasks that are all there at 0.

    A task ends at least half its length after its mean busy time; mean busy times are at least those of one
    machine as fast as all devices, the smallest area first (Goemans et al., "Single machine scheduling with
    release dates", SIAM J. Discrete Math. 15, 2002).
    """
    area = tasks.work * tasks.devices
    order = np.argsort(area)
    before = np.cumsum(area[order]) - area[order] / 2
    return float((before / devices + tasks.work[order] / 2).mean())


@pytest.mark.parametrize(("trace", "sjf"), [("trace3_pr", 1223957), ("trace1_pr", 3469792)])
def test_without_preemption_a_short_search_is_far_below_shortest_first(shared: Path, trace: str, sjf: int) -> None:
    tasks, found = play(shared, trace, "searched:tries=1", DispatchRules(strict=True))
    assert least_mean_jct(tasks, 64) < found.mean_jct < 0.7 * sjf


@pytest.mark.parametrize(("trace", "lpt"), [("trace3_pr", 6683082), ("trace1_pr", 21909237)])
def test_the_makespan_is_not_above_that_of_the_largest_first(shared: Path, trace: str, lpt: int) -> None:
    tasks, found = play(shared, trace, "searched:goal=makespan:tries=1", DispatchRules(strict=True))
    assert (tasks.work * tasks.devices).sum() / 64 < round(found.makespan) <= lpt
    assert round(play(shared, trace, "lpt", DispatchRules())[1].makespan) == lpt


@pytest.mark.parametrize(
    ("trace", "ordering", "published"),
    [
        ("trace1_pr", "ssf", 1801860),
        ("trace3_pr", "ssf", 798058),
        ("trace3", "ssf", 185022),
        ("trace3_pr", "srsf", 798058),
        ("trace3", "srsf", 185022),
        ("trace1", "srsf:0.7", 980141),
    ],
)
def test_with_preemption_not_above_published_srsf(shared: Path, trace: str, ordering: str, published: int) -> None:
    tasks, found = play(shared, trace, ordering, DispatchRules(preempt=True))
    assert found.mean_jct <= published
    assert tasks.submit.any() or found.mean_jct > least_mean_jct(tasks, 64)

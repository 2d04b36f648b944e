"""Published traces through the simulated pool, held to figures that others have found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirage.allocation.ddl.formats.readers import parse_pool
from mirage.allocation.ddl.formats.traces import read_muri
from mirage.allocation.ddl.placers import CompiledPlacer
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool
from mirage.domain.pool import SpeedTable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from mirage.domain.pool import PoolView, TaskTable

pytestmark = pytest.mark.shared


class ByColumn:
    """Tasks by a column that never changes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def static_scores(self, tasks: TaskTable) -> NDArray[np.float64]:
        return {"fifo": tasks.submit, "sjf": tasks.expected, "lpt": -tasks.expected * tasks.devices}[self.name]

    def score(self, view: PoolView) -> NDArray[np.float64]:
        return self.static_scores(view.tasks)[view.pending]


class LeastLeft:
    """SRSF: the least remaining device-time first."""

    name = "srsf"

    def static_scores(self, tasks: TaskTable) -> None:
        return None

    def score(self, view: PoolView) -> NDArray[np.float64]:
        return np.asarray(view.remaining * view.tasks.devices)[view.pending]


def flat(tasks: int) -> SpeedTable:
    return SpeedTable(np.zeros((tasks, 1, 1), dtype=np.int32), np.ones(1), np.ones((1, 1)))


def muri_pool(shared: Path, trace: str, rules: DispatchRules) -> SimulatedPool:
    pool = parse_pool("8x8")
    tasks = read_muri(shared / "yardsticks" / "muri" / f"{trace}.csv", pool).tasks
    return SimulatedPool(tasks, pool, flat(len(tasks)), rules)


@pytest.mark.parametrize(
    ("trace", "ordering", "strict", "mean_jct", "makespan"),
    [
        ("trace3_pr", "fifo", True, 4310847, 7569099),
        ("trace3_pr", "fifo", False, 2775249, 6737617),
        ("trace3_pr", "sjf", False, 1223957, 7030231),
        ("trace3_pr", "lpt", False, 4273545, 6683082),
        ("trace1_pr", "fifo", True, 16050599, 23624693),
        ("trace1_pr", "sjf", False, 3469792, 23551554),
        ("trace1_pr", "lpt", False, 18635109, 21909237),
        ("trace3", "fifo", True, 1053201, None),
        ("trace3", "fifo", False, 520028, None),
        ("trace3", "sjf", False, 247466, None),
        ("trace3", "lpt", False, 875439, None),
    ],
)
def test_without_preemption_another_program_found_the_same(
    shared: Path, trace: str, ordering: str, strict: bool, mean_jct: int, makespan: int | None
) -> None:
    pool = muri_pool(shared, trace, DispatchRules(strict=strict))
    found = pool.play(ByColumn(ordering), CompiledPlacer("best-fit")).figures
    assert round(found.mean_jct) == mean_jct
    assert makespan is None or round(found.makespan) == makespan


@pytest.mark.parametrize(
    ("trace", "published"), [("trace3_pr", 798058), ("trace1_pr", 1801860), ("trace3", 185022), ("trace1", 980141)]
)
def test_srsf_is_near_what_is_published_though_nothing_is_moved(shared: Path, trace: str, published: int) -> None:
    """Muri's simulator places all running jobs again at each event, at no cost; ours leaves them where they
    are."""
    found = (
        muri_pool(shared, trace, DispatchRules(preempt=True)).play(LeastLeft(), CompiledPlacer("best-fit")).figures
    )
    assert found.mean_jct == pytest.approx(published, rel=0.03)
    assert found.preemptions > 100


@pytest.mark.parametrize(
    ("trace", "published"), [("trace3_pr", 798058), ("trace1_pr", 1801860), ("trace3", 185022), ("trace1", 980141)]
)
def test_srsf_with_moves_that_cost_a_restart_is_at_least_as_good_as_published(
    shared: Path, trace: str, published: int
) -> None:
    rules = DispatchRules(preempt=True, move=True)
    found = muri_pool(shared, trace, rules).play(LeastLeft(), CompiledPlacer("best-fit")).figures
    assert 0.95 * published < found.mean_jct <= published

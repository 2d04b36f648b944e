"""A model fitted to a table drawn from a known model equals the known model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.trace.generator import WorkloadModel, fit, generate, workload_model
from mirage.trace.generator.fitting import peak_nodes
from mirage.trace.generator.model import (
    LEVELS,
    ArrivalModel,
    BatchSize,
    Correlation,
    ExitCode,
    Habits,
    HandChains,
    JobClass,
    RequestShape,
)

HOURS = tuple(1.5 if 8 <= hour % 24 < 20 else 0.5 for hour in range(168))


def flat(low: float, high: float) -> tuple[float, ...]:
    """Quantiles of a uniform quantity."""
    return tuple(low + level * (high - low) for level in LEVELS)


def job_class(nodes: int, limits: tuple[int, ...], share: float, timeout: float, cancelled: float) -> JobClass:
    return JobClass(
        shares=(share,) * 20,
        shapes=tuple(RequestShape(nodes, limit, 1 / len(limits)) for limit in limits),
        batch_sizes=(BatchSize(1, 0.75), BatchSize(4, 0.25)),
        new_series=0.25,
        series_return=flat(2, 200),
        cancelled_pending=cancelled,
        timeout=timeout,
        runtime=flat(-2, -0.1),
        failed_short=0.5,
        failed_long=0.2,
        cancelled_running=0.1,
    )


def known() -> WorkloadModel:
    """Two classes: an hour on one node, a day on four."""
    return WorkloadModel(
        name="known",
        source="arithmetic",
        partition="main",
        nodes=100,
        cpus_per_node=8,
        gres=(),
        arrivals=ArrivalModel(1_736_121_600, 140, 100.0, HOURS, (0.5,) * 10 + (1.5,) * 10, 0.04),
        classes=(
            job_class(1, (3600, 3000, 2400), 0.7, 0.1, 0.05),
            job_class(4, (86_400, 72_000, 57_600), 0.3, 0.4, 0.2),
        ),
        habits=Habits(
            new_user=0.2,
            same_class=0.5,
            same_name=0.4,
            user_return=flat(2, 100),
            class_return=flat(2, 100),
            gaps=flat(0, 600),
            gap_correlation=Correlation(0.0, 0.3),
            runtime_correlation=Correlation(0.2, 0.5),
            cancel_correlation=Correlation(0.0, 0.5),
            size_effect=0.0,
            alone=0.0,
            most_outstanding=400,
            leave=flat(0, 10),
            accounts=5,
        ),
        chains=HandChains(43_200, 0.0, flat(0, 1), flat(0, 1)),
        exit_codes=(ExitCode(1, 0.8), ExitCode(2, 0.2)),
    )


@pytest.fixture(scope="module")
def fitted() -> WorkloadModel:
    return fit(generate(known(), 11), "again", nodes=100)


def test_the_calendar_comes_back(fitted: WorkloadModel) -> None:
    calendar = fitted.arrivals
    assert (calendar.start, calendar.days) == (known().arrivals.start, 140)
    assert calendar.batches_per_day == pytest.approx(100, rel=0.05)
    assert calendar.hour_of_week == pytest.approx(HOURS, abs=0.35)
    assert np.mean(calendar.weeks[:10]) == pytest.approx(0.5, abs=0.05)
    assert calendar.day_dispersion == pytest.approx(0.04, abs=0.02)


def test_the_classes_come_back(fitted: WorkloadModel) -> None:
    shapes = [sorted((s.nodes, s.limit) for s in c.shapes) for c in fitted.classes]
    assert shapes == [sorted((s.nodes, s.limit) for s in c.shapes) for c in known().classes]
    for found, true in zip(fitted.classes, known().classes, strict=True):
        assert np.mean(found.shares) == pytest.approx(true.shares[0], abs=0.03)
        assert found.timeout == pytest.approx(true.timeout, abs=0.01)
        assert found.cancelled_pending == pytest.approx(true.cancelled_pending, abs=0.01)
        assert found.new_series == pytest.approx(true.new_series, abs=0.06)
        assert found.failed_long == pytest.approx(true.failed_long * 1.0, abs=0.03)
        assert found.cancelled_running == pytest.approx(true.cancelled_running, abs=0.02)
        assert found.runtime[2:-2] == pytest.approx(true.runtime[2:-2], abs=0.05)
        sizes = {b.jobs: b.weight for b in found.batch_sizes}
        assert sizes[1] == pytest.approx(0.75, abs=0.05)


def test_the_habits_come_back(fitted: WorkloadModel) -> None:
    habits, true = fitted.habits, known().habits
    assert habits.new_user == pytest.approx(true.new_user, abs=0.05)
    assert habits.same_name == pytest.approx(true.same_name, abs=0.12)
    assert habits.gaps == pytest.approx(true.gaps, abs=25)
    assert habits.leave == pytest.approx(true.leave, abs=0.7)
    assert habits.runtime_correlation.series == pytest.approx(0.2, abs=0.1)
    assert habits.runtime_correlation.batch == pytest.approx(0.5, abs=0.1)
    assert abs(habits.size_effect) < 0.06
    assert habits.accounts == true.accounts
    assert fitted.cpus_per_node == 8
    assert {e.code: e.weight for e in fitted.exit_codes} == pytest.approx({1: 0.8, 2: 0.2}, abs=0.02)


def test_the_load_comes_back(fitted: WorkloadModel) -> None:
    table = generate(known(), 11)
    real = (table.nodes * table.runtime).sum() / (100 * 140 * 86_400)
    assert fitted.offered_load() == pytest.approx(real, rel=0.05)
    again = generate(fitted, 3)
    assert (again.nodes * again.runtime).sum() / (100 * 140 * 86_400) == pytest.approx(real, rel=0.1)


def test_instants_relative_to_an_origin_are_understood() -> None:
    table = generate("demo", 1, days=20)
    zero = 1_736_121_600
    shifted = replace(
        table,
        submit=table.submit - zero,
        start=np.where(table.start == ABSENT, ABSENT, table.start - zero),
        end=table.end - zero,
        origin=zero,
    )
    assert fit(shifted, "a").arrivals == fit(table, "a").arrivals


def test_single_users_do_not_show() -> None:
    """A request that fewer than three users make is merged with the nearest one."""
    table = generate("ls6", 1, jobs=5000)
    odd = table.limit.copy()
    odd[table.user.codes == table.user.codes[100]] = 77_777
    model = fit(replace(table, limit=odd), "private")
    assert all(s.limit != 77_777 for c in model.classes for s in c.shapes)


def test_too_little_to_fit() -> None:
    table = generate("demo", 1, jobs=100)
    with pytest.raises(TraceError, match="only 100 of 100 jobs"):
        fit(table, "little")
    nameless = generate("demo", 1, days=30)
    with pytest.raises(TraceError, match="only 0 of"):
        fit(replace(nameless, limit=np.full(len(nameless), ABSENT)), "no limits")


def test_peak_nodes_counts_ends_before_starts() -> None:
    table = generate("demo", 1, jobs=3)
    moved = replace(
        table,
        start=np.array([0, 10, 10]),
        end=np.array([10, 20, 15]),
        nodes=np.array([5, 2, 4], dtype=np.int32),
        state=np.full(3, JobState.COMPLETED, dtype=np.int8),
    )
    assert peak_nodes(moved) == 6


def test_a_fit_of_the_preset_offers_the_same_load() -> None:
    first = generate("ls6", 5)
    model = fit(first, "again", nodes=76)
    assert model.offered_load() == pytest.approx(workload_model("ls6").offered_load(), rel=0.12)

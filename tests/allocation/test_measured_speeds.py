"""Tables of speeds from what was measured, against truths that were made up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.allocation.ddl.estimation import TRUSTED, Evidence, estimate, spread_counted
from mirage.allocation.ddl.formats.readers import parse_pool, read_speeds
from mirage.allocation.ddl.formats.speeds import document, read_measured
from mirage.allocation.ddl.formats.table import task_table
from mirage.allocation.ddl.speeds import MeasuredRun, Measurements, partial_speed_table, speed_table
from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

A, A_WIDE, B = MeasuredRun("a", 2, 1, "gpu"), MeasuredRun("a", 2, 2, "gpu"), MeasuredRun("b", 4, 1, "gpu")
RUNS = st.builds(
    MeasuredRun,
    st.sampled_from("ab"),
    st.sampled_from([1, 2]),
    st.integers(1, 3),
    st.sampled_from(["k80", "v100"]),
)
SCENES = st.tuples(RUNS, st.lists(RUNS, max_size=3), st.floats(1, 1e5), st.floats(0.1, 1e6))


def evidence(*seen: tuple[MeasuredRun, tuple[MeasuredRun, ...], float, float]) -> Evidence:
    found = Evidence()
    for run, beside, seconds, rate in seen:
        found.add(run, beside, seconds, rate * seconds)
    return found


def alone(measured: Measurements, run: MeasuredRun) -> float:
    throughput = measured.throughput[measured.runs.index(run)]
    return float(throughput / measured.reference(run.model, run.devices))


def beside(measured: Measurements, run: MeasuredRun, other: MeasuredRun) -> float:
    return float(measured.ratio[measured.runs.index(run), measured.runs.index(other)])


@pytest.mark.parametrize("count", [1, 4, 16, 64])
@pytest.mark.parametrize("truth", [0.4, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_what_neighbours_leave_is_found_as_well_as_so_many_measurements_allow(
    count: int, truth: float, seed: int
) -> None:
    # With W = time / TRUSTED alone and as much next to, ridge regression gives W / (W + 2) of the difference of
    # the
    # logarithms: a bias of |log truth| x 2 / (W + 2), and a standard deviation of at most noise x sqrt(2 / count).
    noise, seconds, rng = 0.1, 1_800.0, np.random.default_rng(seed)
    found = Evidence()
    for others, factor in (((), 1.0), ((B,), truth)):
        for rate in 7.0 * factor * np.exp(rng.normal(0, noise, count)):
            found.add(A, others, seconds, rate * seconds)
    weight = count * seconds / TRUSTED
    bound = abs(np.log(truth)) * 2 / (weight + 2) + 4 * noise * np.sqrt(2 / count)
    assert abs(np.log(beside(estimate(found), A, B) / truth)) <= bound


def test_few_measurements_are_believed_in_part() -> None:
    # Twice TRUSTED alone and next to: half of the logarithm, which is the definition of TRUSTED.
    found = estimate(evidence((A, (), 2 * TRUSTED, 4.0), (A, (B,), 2 * TRUSTED, 1.0)))
    assert beside(found, A, B) == pytest.approx(0.5)
    assert beside(found, B, A) == 1.0


def test_placements_neighbours_and_their_products_are_told_apart() -> None:
    # The cost of a spread appears in products with neighbours; the model has to separate the factors.
    long = 1e7
    found = estimate(
        evidence(
            (A, (), long, 10.0),
            (A, (B,), long, 8.0),
            (A_WIDE, (B, B), long, 10.0 * 0.5 * 0.9**2),
            (A_WIDE, (), long, 10.0 * 0.5),
            (B, (A,), long, 3.0 * 0.7),
            (B, (A_WIDE, A_WIDE), long, 3.0 * 0.6**2),
            (B, (), long, 3.0),
        )
    )
    assert alone(found, A_WIDE) == pytest.approx(0.5, rel=1e-3)
    assert found.throughput[found.runs.index(B)] == pytest.approx(3.0, rel=1e-3)
    for run, other, truth in ((A, B, 0.8), (A_WIDE, B, 0.9), (B, A, 0.7), (B, A_WIDE, 0.6)):
        assert beside(found, run, other) == pytest.approx(truth, rel=1e-3)


@given(st.lists(st.tuples(RUNS, st.floats(1, 1e5), st.floats(0.1, 1e6)), max_size=20))
def test_without_neighbours_nobody_is_believed_to_disturb(seen: list[tuple[MeasuredRun, float, float]]) -> None:
    found = Evidence()
    for run, seconds, done in seen:
        found.add(run, (), seconds, done)
    assert (estimate(found).ratio == 1.0).all()


@given(st.lists(SCENES, max_size=12))
def test_tables_are_finite_and_what_was_not_measured_stays_one(
    seen: list[tuple[MeasuredRun, list[MeasuredRun], float, float]],
) -> None:
    found = Evidence()
    for run, others, seconds, done in seen:
        found.add(run, others, seconds, done)
    table = estimate(found)
    assert np.isfinite(table.throughput).all()
    assert (table.throughput > 0).all()
    assert np.isfinite(table.ratio).all()
    assert (table.ratio > 0).all()
    met = {(run, other) for run, others, *_ in seen for other in others}
    for i, run in enumerate(table.runs):
        for j, other in enumerate(table.runs):
            assert (run, other) in met or table.ratio[i, j] == 1.0


@given(st.lists(SCENES, max_size=8), st.randoms(use_true_random=False))
def test_the_order_in_which_links_add_up_makes_no_difference(
    seen: list[tuple[MeasuredRun, list[MeasuredRun], float, float]], random: object
) -> None:
    one, other = Evidence(), Evidence()
    for each in seen:
        one.add(*each)
    random.shuffle(seen)  # type: ignore[attr-defined]
    for each in seen:
        other.add(*each)
    assert estimate(one).throughput == pytest.approx(estimate(other).throughput, rel=1e-6)


PRIOR = Measurements(
    "given",
    (MeasuredRun("a", 2, 1), MeasuredRun("a", 2, 2), MeasuredRun("c", 1, 1)),
    np.array([100.0, 40.0, 9.0]),
    np.array([[0.5, 1, 1], [1, 1, 1], [1, 1, 1]]),
)


def test_nothing_measured_leaves_the_table_that_was_given() -> None:
    found = estimate(Evidence(), PRIOR)
    assert found.runs == PRIOR.runs
    assert found.throughput.tolist() == PRIOR.throughput.tolist()
    assert found.ratio.tolist() == PRIOR.ratio.tolist()


def test_what_is_measured_mends_the_table_that_was_given() -> None:
    # Spread over two nodes it is 0.8 as fast, not 0.4; halved next to its like, as the table has it.
    long = 1e8
    seen = evidence((A, (), long, 5.0), (A_WIDE, (), long, 4.0), (A, (A,), long, 2.5))
    found = estimate(seen, PRIOR)
    tasks, pool = task_table(("t",), devices=[2], model=["a"], max_nodes=[2]), parse_pool("2x2:gpu")
    speeds = speed_table(found, tasks, pool)
    assert speeds.alone[speeds.row[0, 0]] == pytest.approx([1.0, 0.8], rel=1e-3)
    row = speeds.row[0, 0, 0]
    assert speeds.together[row, row] == pytest.approx(0.5, rel=1e-3)
    assert MeasuredRun("c", 1, 1) in found.runs  # of which nothing was measured


def test_a_little_measured_hardly_moves_the_table_that_was_given() -> None:
    found = estimate(evidence((A, (), 6.0, 5.0), (A_WIDE, (), 6.0, 5.0)), PRIOR)
    assert alone(found, A_WIDE) == pytest.approx(0.4, rel=0.02)


def test_spreads_beyond_the_fewest_become_numbers_of_nodes() -> None:
    runs = (MeasuredRun("a", 16, 1), MeasuredRun("a", 16, 2))
    gavel = Measurements("gavel", runs, np.array([4.0, 1.0]), np.ones((2, 2)), beyond_fewest=True)
    pool, tasks = parse_pool("4x8"), task_table(("t",), devices=16, model=["a"])
    one, other = speed_table(gavel, tasks, pool), speed_table(spread_counted(gavel, pool), tasks, pool)
    for spread in range(4):
        widest = min(spread, other.row.shape[2] - 1)
        assert one.alone[one.row[0, 0, spread]] == other.alone[other.row[0, 0, widest]]


def test_tasks_of_which_nothing_is_known_run_at_speed_one() -> None:
    found = estimate(evidence((A, (), 1e7, 4.0), (A_WIDE, (), 1e7, 2.0)))
    tasks = task_table(("t", "u"), devices=[2, 2], model=["a", "unheard"], max_nodes=[2, 2])
    speeds = partial_speed_table(found, tasks, parse_pool("2x4:gpu,1x4:other"))
    assert speeds.alone[speeds.row[0, 0]] == pytest.approx([1.0, 0.5], rel=1e-3)
    assert (speeds.row[1] == 0).all()
    assert (speeds.row[0, 1] == 0).all()  # on that kind it was not measured


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    seen = evidence((A, (), 900.0, 5.0), (A_WIDE, (B,), 900.0, 4.0), (B, (A_WIDE,), 700.0, 3.0))
    table = estimate(seen)
    (tmp_path / "speeds.json").write_text(json.dumps(document(table, seen)))
    found = read_speeds(f"measured:{tmp_path}/speeds.json")
    assert found.runs == table.runs
    assert found.reference_kind == "gpu"
    assert found.throughput.tolist() == table.throughput.tolist()
    assert found.ratio.tolist() == table.ratio.tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version"),
        ({"runs": [{"model": "a", "devices": 0, "spread": 1, "kind": "", "throughput": 1.0}]}, r"runs.0.devices"),
        ({"beside": [[0, 9, 0.5]]}, r"\[0, 9\] are not among the"),
        ({"beside": [[0, 0, -0.5]]}, r"beside.0.2"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    run = {"model": "a", "devices": 1, "spread": 1, "kind": "", "throughput": 1.0}
    content = {"version": 1, "reference_kind": "", "runs": [run], "beside": []} | change
    (tmp_path / "f.json").write_text(json.dumps(content))
    with pytest.raises(TraceError, match=said):
        read_measured(tmp_path / "f.json")

"""Recorded waits: known values contain nothing of the future, and the scores equal those of plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_trace import CLUSTER, DAY, trace

from mirage.domain.errors import ConfigError, TraceError
from mirage.domain.job import ABSENT, NEVER
from mirage.simulator.simulation import Simulation
from mirage.training.evaluation.wait_comparison import Choice, compare_waits, score, split
from mirage.training.evaluation.wait_methods import (
    PresentWeights,
    WaitRecords,
    by_class,
    by_lookahead,
    features,
    recorded_observation,
)


def played(days: int = 40):
    """A trace with the waits that a simulation gave."""
    table = trace(days=days, load=0.95)
    simulation = Simulation(CLUSTER, table)
    simulation.run_until(int(table.submit[-1]) + 60 * DAY)
    schedule = simulation.schedule()
    start, end = (np.asarray(schedule[name]) for name in ("start", "end"))
    ran = (start != NEVER) & (end != NEVER)
    return replace(table, start=np.where(ran, start, ABSENT), end=np.where(ran, end, table.end)).take(ran)


TABLE = played()

EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 20), st.integers(0, 5)),
    min_size=1,
    max_size=30,
)


@given(EVENTS, st.integers(0, 2), st.integers(0, 25))
def test_a_tally_is_what_had_come_and_not_left(events, group: int, time: int) -> None:
    groups, came, stayed, weight = (np.array(column, dtype=np.int64) for column in zip(*events, strict=True))
    tally = PresentWeights(groups, came, came + stayed, weight.astype(float))
    there = [w for g, c, s, w in events if g == group and c < time <= c + s]
    assert tally.at(np.array([group]), np.array([time]))[0] == sum(there)


def later_unknown(row: int):
    """The trace as it was known just before a job's submission, and what came later made up."""
    now = TABLE.submit[row]
    begun, over = TABLE.start < now, TABLE.end < now
    rng = np.random.default_rng(row)
    start = np.where(begun, TABLE.start, np.maximum(TABLE.submit, now) + rng.integers(0, 9 * DAY, len(TABLE)))
    end = np.where(over, TABLE.end, np.maximum(start, now) + rng.integers(0, 9 * DAY, len(TABLE)))
    return replace(TABLE, start=start, end=end).take(TABLE.submit <= now)


@pytest.mark.parametrize("row", [len(TABLE) // 2, len(TABLE) - 5])
def test_nothing_of_the_future_is_known(row: int) -> None:
    rows, other = np.array([row]), WaitRecords.of(later_unknown(row))
    records = WaitRecords.of(TABLE)
    seen = features(records, rows, records.recent(rows))
    assert np.array_equal(seen, features(other, rows, other.recent(rows)), equal_nan=True)
    ours, theirs = (recorded_observation(known, CLUSTER, row, 30 * DAY) for known in (records, other))
    assert ours.successor == theirs.successor
    for name in ("pending", "running"):
        for column in ("job_id", "nodes", "limit", "submit", "start", "user", "series"):
            mine, others = (getattr(getattr(one.snapshot, name), column) for one in (ours, theirs))
            assert mine.tolist() == others.tolist()
    assert ours.snapshot.partitions == theirs.snapshot.partitions
    for column in ("submit", "start", "end", "state"):
        assert getattr(ours.history, column).tolist() == getattr(theirs.history, column).tolist()


def test_the_recorded_queue_is_that_of_the_simulation() -> None:
    row = len(TABLE) // 2
    now = int(TABLE.submit[row])
    simulation = Simulation(CLUSTER, trace(days=40, load=0.95))
    simulation.run_until(now - 1)
    pending, running = simulation.columns()
    snapshot = recorded_observation(WaitRecords.of(TABLE), CLUSTER, row, DAY).snapshot
    assert sorted(snapshot.pending.submit) == sorted(pending.submit)
    assert sorted(snapshot.running.start) == sorted(running.start)
    assert snapshot.partitions[0].allocated == running.nodes.sum()


def test_parts_know_nothing_of_one_another() -> None:
    records = WaitRecords.of(TABLE)
    teaching, choosing, testing = split(records, 10**6)
    assert TABLE.start[teaching].max() < TABLE.submit[choosing].min()
    assert TABLE.start[choosing].max() < TABLE.submit[testing].min()
    assert len(split(records, 50)[2]) == 50
    with pytest.raises(ConfigError, match="too few"):
        split(WaitRecords.of(TABLE.take(np.array([0, int(TABLE.wait.argmax())]))), 10)


def test_a_trace_without_waits_is_refused() -> None:
    with pytest.raises(TraceError, match="no recorded waits"):
        WaitRecords.of(trace())


def test_scores_against_plain_loops() -> None:
    rng = np.random.default_rng(1)
    wait = rng.exponential(3, 40)
    runs = [(np.sort(rng.exponential(3, (40, 5)), axis=1), 1.0) for _ in range(2)]
    found = score("trees", runs, wait)
    losses, close, covered = [], [], []
    for told, _ in runs:
        one = [
            max(level * (w - t), (level - 1) * (w - t))
            for w, row in zip(wait, told, strict=True)
            for level, t in zip((0.1, 0.25, 0.5, 0.75, 0.9), row, strict=True)
        ]
        losses.append(sum(one) / len(one))
        close.append(sum(abs(w - row[2]) <= 1 / 6 for w, row in zip(wait, told, strict=True)) / 40)
        covered.append(sum(row[0] <= w <= row[4] for w, row in zip(wait, told, strict=True)) / 40)
    assert found.pinball == pytest.approx(sum(losses) / 2)
    assert (found.pinball_least, found.pinball_most) == pytest.approx((min(losses), max(losses)))
    assert found.close == pytest.approx(sum(close) / 2)
    assert found.coverage == pytest.approx(sum(covered) / 2)


def test_the_class_is_that_of_the_quantile_predictor() -> None:
    records, rows = WaitRecords.of(TABLE), np.array([len(TABLE) - 1])
    recent = records.recent(rows)
    known = np.flatnonzero(TABLE.start < TABLE.submit[-1])
    last = known[np.argsort(TABLE.start[known], kind="stable")][-1_000:]
    assert recent[0].start.tolist() == TABLE.start[last].tolist()
    assert recent[0].wait.tolist() == TABLE.wait[last].tolist()
    assert (np.diff(by_class(TABLE, rows, recent)[0]) >= 0).all()


def test_all_methods_on_one_trace() -> None:
    found = compare_waits(TABLE, Choice(most=300, seeds=2, planned=4), CLUSTER)
    assert [one.method for one in found.all_tested] == ["mean", "quantile of class", "boosted trees"]
    assert [one.method for one in found.planned][-1] == "look-ahead"
    assert found.all_tested[0].coverage is None
    assert found.all_tested[2].seeds == 2
    assert {one.jobs for one in found.planned} == {4}


def test_a_look_ahead_knows_the_first_weeks_too_little() -> None:
    told = by_lookahead(WaitRecords.of(TABLE), CLUSTER, np.array([3, len(TABLE) - 1]))
    assert np.isnan(told[0]).all()
    assert np.isfinite(told[1]).all()
    assert (told[1] >= 0).all()

"""Metrics against hand-computed values, a plain-loop reference, and the coverage that intervals promise."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_replay import synthetic_replay

from mirage.replay.intervals import (
    Resampling,
    block_length,
    expanded_tail,
    resample_episodes,
    student_quantile,
    weighted_mean,
    weighted_quantile,
)
from mirage.replay.metrics import measure, replay_document
from mirage.replay.results import LoadClass, PairOutcome, ReplayResult, build_panel

HOUR = 3_600
QUICK = Resampling(resamples=200)


def handover(policy: str, episode: int, x: float, pair: int = 0) -> PairOutcome:
    """A handover ``x`` hours after the predecessor's end; episodes start four hours apart."""
    start = 4 * HOUR * episode
    end = start + 48 * HOUR
    return PairOutcome(policy, episode, start, pair, start, start, end, end, end + round(x * HOUR), "because")


def replay_of(**x_by_policy: list[float]) -> ReplayResult:
    """A replay with the given signed gaps, in hours, one pair an episode."""
    outcomes = tuple(
        handover(policy, episode, x) for policy, values in x_by_policy.items() for episode, x in enumerate(values)
    )
    return replace(synthetic_replay(episodes=1), policies=tuple(x_by_policy), outcomes=outcomes)


def test_hand_computed_values() -> None:
    replay = replay_of(reactive=[0, 1, 4, 15], early=[-2, 0.25, -1, 6], oracle=[0, 0, -0.5, 0.5])
    row = measure(replay, QUICK).row("early")
    assert row.pairs == 4
    assert row.interruption_mean.value == pytest.approx((0.25 + 6) / 4)
    assert row.interruption_median.value == pytest.approx(0.125)
    assert row.interruption_p90.value == pytest.approx(0.25 + 0.7 * 5.75)
    assert row.overlap_mean.value == pytest.approx(3 / 4)
    assert row.distance_mean.value == pytest.approx(9.25 / 4)
    assert row.uninterrupted_share.value == 0.5
    assert row.close_share.value == 0.25
    assert [(c.overlap_weight, c.hours.value) for c in row.costs] == [
        (1.0, pytest.approx(9.25 / 4)),
        (0.5, pytest.approx(7.75 / 4)),
    ]
    assert row.reduction is not None
    assert row.reduction.value == pytest.approx(1 - 6.25 / 20)
    assert row.regret is not None
    assert row.regret.value == pytest.approx((9.25 - 1) / 4)
    assert row.gap_closed is not None
    assert row.gap_closed.value == pytest.approx((20 - 9.25) / (20 - 1))


def test_classes_follow_the_reactive_policy_and_include_their_upper_bound() -> None:
    replay = replay_of(reactive=[0, 2, 2.001, 12, 12.001, 30], other=[9, 9, 9, 9, 9, 9])
    metrics = measure(replay, QUICK)
    assert metrics.classes == ((LoadClass.LOW, 2), (LoadClass.MEDIUM, 2), (LoadClass.HEAVY, 2))
    assert [metrics.row("other", load).pairs for load in ("all", "low", "medium", "heavy")] == [6, 2, 2, 2]


def test_a_chain_has_the_class_of_its_mean_reactive_interruption() -> None:
    pairs = [handover("reactive", 0, 1, pair=0), handover("reactive", 0, 5, pair=1)]
    assert build_panel(("reactive",), pairs).load == (LoadClass.MEDIUM,)


def test_every_pair_of_a_longer_chain_counts() -> None:
    metrics = measure(synthetic_replay(episodes=20, links=4), QUICK)
    assert metrics.dropped == 0
    assert all(row.pairs == 60 for row in metrics.of_load())


def test_a_minute_is_no_interruption() -> None:
    row = measure(replay_of(reactive=[0, 60 / HOUR, 61 / HOUR, -5]), QUICK).row("reactive")
    assert row.uninterrupted_share.value == 0.75


def test_pairs_that_one_policy_lacks_are_left_out_and_counted() -> None:
    replay = replay_of(reactive=[1, 2, 3], early=[0, 0, 0])
    replay = replace(replay, outcomes=replay.outcomes[:-1])
    metrics = measure(replay, QUICK)
    assert metrics.dropped == 1
    assert metrics.row("reactive").interruption_mean.value == pytest.approx(1.5)


def test_without_baselines_there_are_no_classes_and_no_comparisons() -> None:
    metrics = measure(replay_of(early=[1, 2]), QUICK)
    row = metrics.row("early")
    assert metrics.classes == ()
    assert (row.reduction, row.regret, row.gap_closed) == (None, None, None)


def test_nothing_replayed_gives_no_numbers_rather_than_an_error() -> None:
    row = measure(replay_of(reactive=[], early=[]), QUICK).row("early")
    assert row.pairs == 0
    assert math.isnan(row.interruption_mean.value)
    assert math.isnan(row.interruption_p90.value)


def test_too_few_blocks_give_no_interval() -> None:
    row = measure(replay_of(reactive=[1.0, 2.0] * 10), QUICK).row("reactive")
    assert not row.interruption_mean.bounded


def test_the_document_is_json_and_reproducible() -> None:
    replay = synthetic_replay(episodes=60)
    metrics = measure(replay, QUICK)
    document = json.dumps(replay_document(replay, metrics), allow_nan=False)
    assert document == json.dumps(replay_document(replay, measure(replay, QUICK)), allow_nan=False)
    read = json.loads(document)
    assert read["trace"] == replay.trace
    assert len(read["outcomes"]) == len(replay.outcomes)
    assert len(read["metrics"]["rows"]) == len(metrics.rows)
    assert read["metrics"]["rows"][0]["interruption_mean"]["value"] == metrics.rows[0].interruption_mean.value


gaps = st.lists(st.floats(-30, 30), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_invariants(data: st.DataObject) -> None:
    reactive = data.draw(gaps)
    size = st.lists(st.floats(-30, 30), min_size=len(reactive), max_size=len(reactive))
    replay = replay_of(reactive=reactive, first=data.draw(size), second=data.draw(size))
    metrics = measure(replay, QUICK)
    for row in metrics.rows:
        equal, half = (cost.hours.value for cost in row.costs)
        assert 0 <= row.uninterrupted_share.value <= 1
        assert row.close_share.value <= 1
        assert equal == pytest.approx(row.interruption_mean.value + row.overlap_mean.value)
        assert equal - half == pytest.approx(row.overlap_mean.value / 2, abs=1e-9)
        assert equal == pytest.approx(row.distance_mean.value)
        assert row.interruption_median.value <= row.interruption_p90.value + 1e-12
    base = metrics.row("reactive").reduction
    assert base is not None
    assert base.value == 0 or math.isnan(base.value)
    backwards = measure(replace(replay, policies=tuple(reversed(replay.policies))), QUICK)
    assert all(repr(backwards.row(row.policy, row.load)) == repr(row) for row in metrics.rows)
    assert sum(count for _, count in metrics.classes) == metrics.episodes


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-100, 100), st.integers(0, 4)), min_size=1, max_size=30), st.floats(0, 1))
def test_weighted_statistics_equal_those_of_the_repeated_sample(sample: list[tuple[float, int]], q: float) -> None:
    values = np.array([value for value, _ in sample])
    weights = np.array([[weight for _, weight in sample]], dtype=np.float64)
    repeated = [value for value, weight in sample for _ in range(weight)]
    if not repeated:
        assert math.isnan(weighted_mean(values, weights)[0])
        assert math.isnan(weighted_quantile(values, weights, q)[0])
        return
    assert weighted_mean(values, weights)[0] == pytest.approx(np.mean(repeated), abs=1e-9)
    assert weighted_quantile(values, weights, q)[0] == pytest.approx(np.quantile(repeated, q), abs=1e-9)


def test_resamples_are_runs_of_neighbours() -> None:
    starts = 4 * HOUR * np.arange(100, dtype=np.int64)
    resamples = resample_episodes(starts, Resampling(block=20 * 4 * HOUR, resamples=300, seed=3))
    assert resamples.length == 20
    assert (resamples.weights.sum(axis=1) == 100).all()
    changes = (np.diff(resamples.weights[1:], axis=1, append=resamples.weights[1:, :1]) != 0).sum(axis=1)
    assert changes.max() <= 2 * 5
    assert resamples.weights[1:].mean(axis=0) == pytest.approx(1, abs=0.25)


def test_block_length_follows_the_spacing() -> None:
    starts = np.arange(0, 150 * 4 * HOUR, 4 * HOUR, dtype=np.int64)
    assert block_length(starts, 72 * HOUR) == 18
    assert block_length(starts[:5], 72 * HOUR) == 5
    assert block_length(18 * starts, 72 * HOUR) == 1


@pytest.mark.parametrize(("freedom", "published"), [(3, 3.182), (7, 2.365), (29, 2.045), (120, 1.980)])
def test_student_quantile_agrees_with_printed_tables(freedom: int, published: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(published, rel=0.002)


def test_the_tail_is_the_normal_one_for_many_blocks_and_wider_for_few() -> None:
    assert expanded_tail(1e6, 0.95) == pytest.approx(0.025, rel=1e-4)
    assert expanded_tail(8, 0.95) < 0.01


def _autoregression(rng: np.random.Generator, count: int) -> list[float]:
    x = [float(rng.normal()) / math.sqrt(1 - 0.8**2)]
    for _ in range(count - 1):
        x.append(0.8 * x[-1] + float(rng.normal()))
    return x


def _coverage(block: int) -> float:
    """Share of 150 made-up replays (150 episodes, correlated) whose interval holds the true mean."""
    rng = np.random.default_rng(11)
    starts = 4 * HOUR * np.arange(150, dtype=np.int64)
    held = 0
    for seed in range(150):
        resamples = resample_episodes(starts, Resampling(block=block, resamples=600, seed=seed))
        x = np.array(_autoregression(rng, 150))
        rows = np.arange(150)
        mean = resamples.estimate(weighted_mean(x, resamples.of(rows)), resamples.blocks(rows))
        held += mean.low <= 0 <= mean.high
    return held / 150


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    assert 0.88 <= _coverage(block=72 * HOUR) <= 0.99


def test_drawing_episodes_one_by_one_would_promise_too_much() -> None:
    assert _coverage(block=1) < 0.65


def _slow_reference(replay: ReplayResult, policy: str, load: str) -> dict[str, float]:
    """The same figures by plain loops over outcome records."""
    reactive = {o.episode: o.interruption for o in replay.outcomes if o.policy == "reactive"}
    bounds = {
        "low": (-1, 2 * HOUR),
        "medium": (2 * HOUR, 12 * HOUR),
        "heavy": (12 * HOUR, 1e12),
        "all": (-1, 1e12),
    }
    low, high = bounds[load]
    chosen = [o for o in replay.outcomes if o.policy == policy and low < reactive[o.episode] <= high]
    interruptions = [o.interruption / HOUR for o in chosen]
    return {
        "interruption_mean": sum(interruptions) / len(chosen),
        "interruption_p90": float(np.quantile(interruptions, 0.9)),
        "overlap_mean": sum(o.overlap for o in chosen) / HOUR / len(chosen),
        "close_share": sum(abs(o.x) <= 1_800 for o in chosen) / len(chosen),
    }


@pytest.mark.parametrize("load", ["all", "low", "medium", "heavy"])
def test_agrees_with_plain_loops(load: str) -> None:
    replay = synthetic_replay()
    metrics = measure(replay, QUICK)
    for policy in replay.policies:
        row = metrics.row(policy, load)
        for name, value in _slow_reference(replay, policy, load).items():
            assert getattr(row, name).value == pytest.approx(value), name

"""Feature vectors against slow statements of what each number is, and against what a model was trained on."""

from __future__ import annotations

import math
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import HOUR, NOW, TOTAL, drawn_observation, emptied

from mirage.domain.decision import Observation, PlannedStart, PlanStatus, Standing
from mirage.domain.errors import ConfigError
from mirage.features import normalised
from mirage.features.schema import encode, schema, schema_names
from mirage.features.summary import COLUMNS

PAPER, V2 = schema("paper-v1"), schema("v2")


def named(vector: np.ndarray, names: tuple[str, ...]) -> dict[str, float]:
    return dict(zip(names, vector.tolist(), strict=True))


def column(observation: Observation, row: int, name: str) -> float:
    assert observation.window is not None
    return float(observation.window.rows[row, COLUMNS.index(name)])


# Any schema


@pytest.mark.parametrize("name", schema_names())
def test_a_vector_has_a_finite_number_for_every_name(name: str) -> None:
    chosen = schema(name)
    assert len(set(chosen.names)) == chosen.size
    for observation in (drawn_observation(1), drawn_observation(2, rows=1), emptied(drawn_observation(3))):
        vector = encode(chosen, observation)
        assert vector.shape == (chosen.size,)
        assert vector.dtype == np.float32
        assert np.isfinite(vector).all()


@pytest.mark.parametrize("name", schema_names())
def test_without_a_window_there_is_no_vector(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}.*window"):
        encode(schema(name), replace(drawn_observation(1), window=None))


def test_schemas_that_are_not_there_or_not_made_here() -> None:
    with pytest.raises(ConfigError, match=r"'v3' is none of paper-v1, v2"):
        schema("v3")
    with pytest.raises(ValueError, match="v2 version 99"):
        encode(replace(V2, version=99), drawn_observation(1))
    assert replace(V2, version=99).hash != V2.hash != PAPER.hash


MEANINGS = {
    "paper-v1": "3304946b196789b3 29769d427fdf75af",
    "v2": "2fc88f454270e728 f239348418333a3f",
}


@pytest.mark.parametrize("name", schema_names())
def test_no_number_changes_its_meaning_without_a_new_version(name: str) -> None:
    """Where this fails on purpose: raise the schema's version, and put the new words here."""
    vectors = np.stack([encode(schema(name), drawn_observation(seed)) for seed in range(5)])
    rounded = np.round(vectors.astype(np.float64), 2) + 0.0
    digest = sha256(rounded.tobytes()).hexdigest()
    assert f"{schema(name).hash[:16]} {digest[:16]}" == MEANINGS[name]


def test_a_number_that_is_none_is_named() -> None:
    observation = replace(drawn_observation(1), standing=Standing(math.inf, 3, 0))
    with pytest.raises(ValueError, match="v2: feature fair_share is inf"):
        encode(V2, observation)
    assert observation.window is not None
    rows = observation.window.rows.copy()
    rows[-1, COLUMNS.index("idle_nodes")] = np.nan
    spoilt = replace(drawn_observation(1), window=replace(observation.window, rows=rows))
    with pytest.raises(ValueError, match=r"v2: feature idle_nodes\[0\] is nan"):
        encode(V2, spoilt)


# paper-v1


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 100, 144]))
def test_paper_rows_are_the_published_forty_two(seed: int, rows: int) -> None:
    observation = drawn_observation(seed, rows)
    found = encode(PAPER, observation).reshape(144, 42)
    job = observation.predecessor
    assert job is not None
    links = [2_880, job.nodes, job.start - job.submit, NOW - job.start, 2_880, observation.successor.nodes, 0, 0]
    for step in (0, 71, 142, 143):
        row = max(0, step - (144 - rows))
        expected = [column(observation, row, "pending_jobs"), column(observation, row, "pending_nodes")]
        for what, unit in (("pending_limit", 60), ("pending_age", 1)):
            expected += [column(observation, row, f"{what}_p{level}") / unit for level in (0, 25, 50, 75, 100)]
        expected += [0, 0, 0, 0, 0, column(observation, row, "running_jobs")]
        expected += [column(observation, row, "running_nodes")]
        for what, unit in (("running_limit", 60), ("running_wait", 1), ("running_elapsed", 1)):
            expected += [column(observation, row, f"{what}_p{level}") / unit for level in (0, 25, 50, 75, 100)]
        assert found[step].tolist() == pytest.approx([*expected, *links], rel=1e-6)


# v2


def log_hours(seconds: float) -> float:
    return math.log1p(max(seconds, 0) / HOUR)


@given(st.integers(0, 10**6), st.sampled_from([1, 30, 144]))
def test_v2_steps_are_the_last_hours(seed: int, rows: int) -> None:
    observation = drawn_observation(seed, rows)
    found = named(encode(V2, observation), V2.names)
    for back in (0, 1, 5, 23):
        row = max(0, rows - 1 - 6 * back)
        assert found[f"idle_nodes[{-back}]"] == pytest.approx(column(observation, row, "idle_nodes") / TOTAL)
        for name, expected in (
            ("pending_jobs", math.log1p(column(observation, row, "pending_jobs"))),
            ("pending_nodes", math.log1p(column(observation, row, "pending_nodes") / TOTAL)),
            ("eligible_node_seconds", log_hours(column(observation, row, "eligible_node_seconds") / TOTAL)),
            ("pending_age_p50", log_hours(column(observation, row, "pending_age_p50"))),
            ("freed_12h", column(observation, row, "freed_12h") / TOTAL),
        ):
            assert found[f"{name}[{-back}]"] == pytest.approx(expected, rel=1e-5), name
    for lag in (1, 3, 6, 12):
        change = found["pending_jobs[0]"] - found[f"pending_jobs[{-lag}]"]
        assert found[f"pending_jobs_since_{lag}h"] == pytest.approx(change, abs=1e-5)
    oldest = column(observation, 0, "idle_nodes") / TOTAL
    assert found["idle_nodes_since_24h"] == pytest.approx(found["idle_nodes[0]"] - oldest, abs=1e-6)


def hours_until_free(observation: Observation, nodes: int) -> float:
    """Walk over the limits' ends in order of time, adding up."""
    (state,) = observation.snapshot.partitions
    running, free = observation.snapshot.running, state.idle
    if nodes <= free:
        return 0
    for k in np.argsort(running.start + running.limit, kind="stable"):
        free += running.nodes[k]
        if free >= nodes:
            return min(max(0, running.start[k] + running.limit[k] - NOW) / HOUR, 96)
    return 96


def statics_of_the_queue(observation: Observation) -> dict[str, float]:
    """Where the successor would stand, and what is free for it."""
    pending, job = observation.snapshot.pending, observation.predecessor
    assert job is not None
    (state,) = observation.snapshot.partitions
    ready = [k for k in range(len(pending)) if pending.eligible[k] <= NOW]
    ahead = sum(int(pending.nodes[k]) for k in ready)
    work = sum(int(pending.nodes[k] * pending.limit[k]) for k in ready) / HOUR
    asked = observation.successor.nodes
    smaller = sum(int(pending.nodes[k]) for k in ready if pending.nodes[k] <= asked)
    left = (job.end - NOW) / HOUR
    behind = hours_until_free(observation, asked + ahead)
    expected = {
        "now_idle": state.idle / TOTAL,
        "now_down": state.down / TOTAL,
        "ahead_jobs": math.log1p(len(ready)),
        "ahead_nodes": math.log1p(ahead / TOTAL),
        "ahead_hours": math.log1p(work / TOTAL),
        "ahead_smaller_nodes": math.log1p(smaller / TOTAL),
        "barred_nodes": math.log1p((int(pending.nodes.sum()) - ahead) / TOTAL),
        "fits_now": float(asked <= state.idle),
        "room_alone": math.log1p(hours_until_free(observation, asked)),
        "room_behind": math.log1p(behind),
        "room_behind_x": (behind - left) / 24,
        "predecessor_runs": 1,
        "predecessor_remaining": left / 24,
        "predecessor_elapsed": (NOW - job.start) / (48 * HOUR),
        "predecessor_wait": log_hours(job.start - job.submit),
        "successor_share": asked / TOTAL,
        "plan_unknown": 0,
        "plan_wait": log_hours(observation.planned_start.start - NOW),
        "reserved_nodes": 2 / TOTAL,
    }
    for hours in (1, 8, 48):
        ends = observation.snapshot.running.start + observation.snapshot.running.limit
        nodes = int(observation.snapshot.running.nodes[ends <= NOW + hours * HOUR].sum())
        expected[f"now_freed_{hours}h"] = nodes / TOTAL
    return expected


def statics_of_the_past(observation: Observation) -> dict[str, float]:
    """How long others waited, what the owner is granted, and the time."""
    waits, asked = observation.waits, observation.successor.nodes
    assert observation.predecessor is not None
    left = (observation.predecessor.end - NOW) / HOUR
    alike = [
        wait
        for wait, nodes, limit in zip(waits.wait, waits.nodes, waits.limit, strict=True)
        if limit > 24 * HOUR and ((nodes == 1) == (asked == 1) and (asked == 1 or 4 < nodes <= 16))
    ][-100:]
    started = zip(waits.start, waits.nodes, strict=True)
    return {
        "waits_q10": log_hours(np.quantile(alike, 0.1)),
        "waits_q50": log_hours(np.quantile(alike, 0.5)),
        "waits_q90": log_hours(np.quantile(alike, 0.9)),
        "waits_mean": log_hours(np.mean(alike)),
        "waits_last": log_hours(alike[-1]),
        "waits_q50_x": (np.median(alike) / HOUR - left) / 24,
        "started_24h": math.log1p(sum(int(nodes) for start, nodes in started if start > NOW - 24 * HOUR) / TOTAL),
        "waits_any": log_hours(np.mean(waits.wait[-100:])),
        "fair_share": 0.25,
        "jobs_left": math.log1p(3),
        "day_sin": math.sin(2 * math.pi * (NOW / 86_400 % 1)),
        "week_cos": math.cos(2 * math.pi * (NOW / 604_800 % 1)),
    }


@given(st.integers(0, 10**6))
def test_v2_statics_are_what_they_are_called(seed: int) -> None:
    observation = drawn_observation(seed)
    found = named(encode(V2, observation), V2.names)
    expected = statics_of_the_queue(observation) | statics_of_the_past(observation)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_v2_of_one_hand_over_does_not_depend_on_which_were_asked_about_before() -> None:
    """Values that the chains of a cycle share are computed one time; another window or time is another cycle."""
    one, other = drawn_observation(1), drawn_observation(2)
    asked = [one, replace(other, successor=one.successor), other, replace(one, time=NOW + 2 * HOUR)]
    asked += [replace(one, window=other.window), replace(other, window=one.window), one]
    vectors = [encode(V2, observation) for observation in asked]
    for observation, vector in zip(asked, vectors, strict=True):
        normalised._told.clear()
        np.testing.assert_array_equal(encode(V2, observation), vector)


def test_v2_says_what_is_not_known() -> None:
    found = named(encode(V2, emptied(drawn_observation(1))), V2.names)
    unknown = ("plan_unknown", "waits_unknown", "fair_share_unknown", "jobs_left_unknown")
    assert [found[name] for name in unknown] == [1, 1, 1, 1]
    assert found["predecessor_runs"] == 0
    assert found["plan_wait"] == pytest.approx(math.log1p(96))


def test_v2_refuses_what_no_training_has_met() -> None:
    for status in set(PlanStatus) - {PlanStatus.KNOWN, PlanStatus.BEYOND_WINDOW}:
        with pytest.raises(ValueError, match=f"v2: {status}"):
            encode(V2, replace(drawn_observation(1), planned_start=PlannedStart(status)))
    for standing in (Standing(), Standing(0.5, 3), Standing(0.5, reserved_nodes=0)):
        with pytest.raises(ValueError, match="v2: the owner's limits and the reservations are not known"):
            encode(V2, replace(drawn_observation(1), standing=standing))


def test_v2_needs_the_partitions_nodes() -> None:
    observation = drawn_observation(1)
    elsewhere = replace(observation, successor=replace(observation.successor, partition="cpu"))
    with pytest.raises(ValueError, match="no nodes of partition 'cpu'"):
        encode(V2, elsewhere)

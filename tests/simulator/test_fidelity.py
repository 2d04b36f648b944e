"""The simulator against recordings of a real slurmctld (``slurm-testbed/fidelity``)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mirage.bench.fidelity import (
    agreement,
    broken,
    measure_fidelity,
    rank_correlation,
    recorded_schedule,
    repeated,
    simulated_schedule,
    starts_of,
    submits_of,
)
from mirage.bench.recorded_passes import alike, ask, conduct
from mirage.bench.recordings import play, read_recording
from mirage.domain.errors import ConfigError, TraceError

RECORDINGS = Path(__file__).parent / "recordings"
ALL = {
    str(path.relative_to(RECORDINGS)).removesuffix(".json.gz"): read_recording(path)
    for path in sorted(RECORDINGS.rglob("*.json.gz"))
}
"""Those of Debian 12's Slurm by their names; those of others lie in a directory for each version."""
SCENARIOS = sorted(name for name, recording in ALL.items() if recording.expected)
DAY, AGAIN = "day-1", "day-1-again"


def test_there_is_a_scenario_for_each_rule_on_each_slurm() -> None:
    assert Counter(ALL[name].slurm for name in SCENARIOS) == {"22.05.8": 26, "24.11.5": 26, "26.05.5": 26}
    for name in SCENARIOS:
        assert ALL[name].slurm == (name.rpartition("/")[0] or "22.05.8")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_exact_on_slurm_and_on_the_simulator(name: str) -> None:
    recording = ALL[name]
    assert broken(recording, recorded_schedule(recording)) == ()
    assert broken(recording, simulated_schedule(recording, play(recording))) == ()


def test_an_expectation_that_is_not_met_is_told() -> None:
    recording = ALL["age"]
    went = recorded_schedule(recording)
    late = {name: start + 600 * (name == "old") for name, start in went.starts.items()}
    swapped = type(went)(went.submits, late, went.ends, went.refused)
    assert any(sentence.startswith("old started 6") for sentence in broken(recording, swapped))


@pytest.mark.parametrize("name", [DAY, AGAIN])
def test_a_contended_day_left_to_itself_is_as_close_as_slurm_comes_to_itself(name: str) -> None:
    recording = ALL[name]
    found = agreement(submits_of(recording), starts_of(recording), play(recording).starts)
    floor = repeated(ALL[DAY], ALL[AGAIN])
    assert found.jobs >= 600
    assert found.mean_wait > 1_800, "a day with nothing to wait for would show nothing"
    assert found.median_error < 60
    assert found.p90_error <= floor.p90_error
    assert found.rank_correlation >= floor.rank_correlation
    assert abs(found.mean_wait_ratio - 1) <= abs(floor.mean_wait_ratio - 1)


@pytest.mark.parametrize("name", [DAY, "day-2", "ls6", "24.11.5/day-1", "26.05.5/day-1"])
def test_looking_when_slurmctld_did_the_simulator_repeats_a_contended_day(name: str) -> None:
    recording = ALL[name]
    found = agreement(submits_of(recording), starts_of(recording), conduct(recording).starts)
    assert found.jobs >= 500
    assert found.mean_wait > 1_800, "a day with nothing to wait for would show nothing"
    assert found.median_error < 10
    assert found.p90_error < 120
    assert abs(found.mean_wait_ratio - 1) < 0.03


@pytest.mark.parametrize("name", [DAY, "day-2", "ls6"])
def test_asked_anew_the_simulator_starts_what_slurm_started(name: str) -> None:
    recording = ALL[name]
    asked = ask(recording)
    assert alike(recording, asked).mean() > 0.985
    assert len(alike(recording, asked, by="backfill")) > 100
    slurms, ours = np.array(asked.priorities)[:, 2:].T
    assert (np.abs(ours - slurms) <= slurms / 1_000).mean() > 0.9


@pytest.mark.parametrize(("name", "older"), [("24.11.5/day-1", "22.05"), ("26.05.5/day-1", "24.11")])
def test_asked_anew_it_starts_what_newer_releases_start_by_their_rules(name: str, older: str) -> None:
    recording = ALL[name]
    assert len(starts_of(recording)) > 600
    assert alike(recording, ask(recording)).mean() > 0.999
    by_older_rules = replace(recording, slurm=older)
    assert alike(recording, ask(by_older_rules)).mean() < 0.997


def test_errors_correlation_and_ratio_of_waits_are_those_worked_out_by_hand() -> None:
    submits = {1: 0, 2: 0, 3: 10, 4: 10}
    found = agreement(submits, {1: 10, 2: 20, 3: 40}, {1: 10, 2: 50, 3: 30, 4: 11})
    assert (found.jobs, found.alone) == (3, 1)
    assert found.median_error == 10
    assert found.p90_error == pytest.approx(26)
    assert found.mean_wait_ratio == pytest.approx((10 + 50 + 20) / (10 + 20 + 30))
    assert found.rank_correlation == pytest.approx(0.5)


def test_ties_share_their_rank() -> None:
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([3.0, 3.0, 9.0])) == pytest.approx(1.0)
    assert np.isnan(rank_correlation(np.array([1.0, 1.0]), np.array([1.0, 2.0])))


def test_schedules_without_a_common_job_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="no job"):
        agreement({1: 0}, {1: 5}, {})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no gzip", "is not a recording"),
        (gzip.compress(b"[]", mtime=0), "format 1"),
        (
            gzip.compress(json.dumps({"format": 1, "workload": "x"}).encode(), mtime=0),
            "without what one must have",
        ),
    ],
    ids=["no gzip", "no object", "nothing in it"],
)
def test_what_is_no_recording_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "bad.json.gz").write_bytes(content)
    with pytest.raises(TraceError, match=f"bad.json.gz: .*{words}"):
        measure_fidelity(tmp_path, lambda _: None)


def test_a_folder_without_recordings_says_what_makes_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="slurm-testbed/fidelity"):
        measure_fidelity(tmp_path, lambda _: None)


def test_the_report_tells_a_scenario_in_a_word() -> None:
    (section,) = measure_fidelity(RECORDINGS / "age.json.gz", lambda _: None)
    assert section.rows == (("Slurm 22.05.8", "exact"), ("the simulator", "exact"))

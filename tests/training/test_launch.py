"""Work as jobs: on processes of this machine, by the library that would submit them."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from small_trace import CLUSTER, DAY, HOUR, trace

from mirage.domain.errors import ConfigError, MissingExtra, SubmissionRejected
from mirage.features.schema import schema
from mirage.training.launch import JobFailed, SlurmJobs
from mirage.training.tables import TablePlan, build_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

START = 1_000_000 + 5 * DAY
PLAN = TablePlan(START, START + 34 * HOUR, (2,), 4 * HOUR, 2 * HOUR, HOUR)
"""18 starts: three chunks."""


def here(folder: Path, count: int = 1) -> SlurmJobs:
    return SlurmJobs(folder / "jobs", "test", 1, count, cluster="local")


def done(jobs: SlurmJobs, work: Sequence[Callable[[], object]]) -> None:
    for _ in jobs.watched(work):
        pass


def test_a_table_that_jobs_build_is_the_one_that_this_process_builds(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    told: list[tuple[int, int]] = []

    def on_progress(done: int, total: int) -> None:
        told.append((done, total))

    arguments = (trace(), CLUSTER, PLAN, schema("v2"))
    apart = build_table(*arguments, tmp_path / "apart", workers=here(tmp_path, 2), on_progress=on_progress)
    alone = build_table(*arguments, tmp_path / "alone")
    assert len(alone) > 0
    for name in ("features", "submit", "start", "end", "episode_start", "nodes", "limit"):
        np.testing.assert_array_equal(getattr(apart, name), getattr(alone, name))
    assert told[0] == (0, 18)
    assert told[-1] == (18, 18)
    assert len(list((tmp_path / "jobs").glob("*_submitted.pkl"))) == 2


def test_what_failed_is_told_with_its_last_words(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    with pytest.raises(JobFailed, match=r"job .*: .*here is no number.*full log in .*jobs"):
        done(here(tmp_path), [partial(int, "here is no number")])


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(MissingExtra, match=r"pip install 'mirage-slurm\[slurm\]'"):
        done(here(tmp_path), [dict])


def test_without_slurm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="sbatch or srun not found; use local"):
        done(SlurmJobs(tmp_path / "jobs", "test", 1), [dict])


def test_a_refusal_is_sbatchs_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    said = "sbatch: error: Batch job submission failed: Invalid partition name specified"
    for name in ("sbatch", "srun"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SubmissionRejected, match=r"PartitionInvalid: .*Invalid partition name specified"):
        done(SlurmJobs(tmp_path / "jobs", "test", 1), [dict])

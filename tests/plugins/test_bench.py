"""``mirage bench predictors``: every model below a directory, on one tick."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from learnable import USUAL, learnable, learnt, with_vectors

from mirage.bench import predictors
from mirage.domain.decision import NO_PLAN, PlanStatus, Wants
from mirage.domain.errors import ConfigError
from mirage.domain.job import JobState
from mirage.domain.jobtable import Names, job_table
from mirage.plugin import write_artifact

if TYPE_CHECKING:
    from pathlib import Path


def test_each_model_is_measured_and_those_that_refuse_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, strange = with_vectors(learnable(0, 10), USUAL), learnable(0, 10)
    for name, table in (("usual", usual), ("strange", strange)):
        write_artifact(tmp_path / "shelf" / name, learnt(), table)
    monkeypatch.setattr(predictors, "generate", lambda preset, seed: None)
    monkeypatch.setattr(predictors, "_tick", lambda table, queue, wants: [USUAL] * 20)
    (tmp_path / "shelf" / "table").mkdir()
    (tmp_path / "shelf" / "table" / "manifest.json").write_text('{"chunks": 3, "format": 1}')
    sections = predictors.measure_predictors(tmp_path, tmp_path / "shelf", lambda step: None)
    assert [section.title.split(",")[0] for section in sections] == ["predictions for 20 chains"] * 2
    for section in sections:
        labels, values = zip(*section.rows, strict=True)
        assert labels == ("quantile, to compare", "made-up", "made-up", "one active, the others in shadow")
        assert all(re.match(r"\d+\.\d ms", value) for value in values)
        assert ["it rejects 20 of them" in value for value in values] == [False, True, False, False]


def test_observations_bring_what_the_models_want() -> None:
    """A model on the usual features rejects an observation without Slurm's plan."""
    count = 400
    submit = 1_700_000_000 + 3_600 * np.arange(count)
    table = job_table(
        count,
        submit=submit,
        start=submit,
        end=submit + 7_200,
        limit=np.full(count, 14_400),
        nodes=np.full(count, 40, dtype=np.int32),
        cpus=np.full(count, 40 * 128, dtype=np.int32),
        user=Names.encode(["ann"] * count),
        state=np.full(count, JobState.COMPLETED, dtype=np.int8),
    )
    seen = predictors._tick(table, 0, Wants(plan=True))
    assert len(seen) == predictors.CHAINS
    assert all(each.planned_start.status in (PlanStatus.KNOWN, PlanStatus.BEYOND_WINDOW) for each in seen)
    assert all(each.planned_start.status is NO_PLAN.status for each in predictors._tick(table, 0, Wants()))


def test_without_a_model_it_says_how_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--models: no trained model is below .*; mirage train makes one"):
        predictors.measure_predictors(tmp_path, tmp_path, lambda step: None)

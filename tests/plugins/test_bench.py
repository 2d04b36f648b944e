"""``mirage bench predictors``: every model below a folder, on one tick."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from learnable import USUAL, learnable, learnt, with_vectors

from mirage.bench import predictors
from mirage.domain.errors import ConfigError
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
    monkeypatch.setattr(predictors, "_tick", lambda table, queue: [USUAL] * 20)
    sections = predictors.measure_predictors(tmp_path, tmp_path / "shelf", lambda step: None)
    assert [section.title.split(",")[0] for section in sections] == ["predictions for 20 chains"] * 2
    for section in sections:
        labels, values = zip(*section.rows, strict=True)
        assert labels == ("quantile, to compare", "made-up", "made-up", "one in charge, the others in shadow")
        assert all(re.match(r"\d+\.\d ms", value) for value in values)
        assert ["it refuses 20 of them" in value for value in values] == [False, True, False, False]


def test_without_a_model_it_says_how_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--models: no trained model is below .*; mirage train makes one"):
        predictors.measure_predictors(tmp_path, tmp_path, lambda step: None)

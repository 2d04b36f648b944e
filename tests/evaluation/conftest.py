"""Traces of other directories' tests, and a place where a little plugin is installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ``PYTHONPATH`` with which a new process finds mirage and the little plugin."""
    site = tmp_path_factory.mktemp("site")
    about = site / "little_plugin-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: little-plugin\nVersion: 1\n")
    lines = ["[mirage.predictors]", "little = little_plugin:predictor"]
    lines += ["[mirage.trainers]", "little = little_plugin:LittleTrainer"]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    known = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([str(site), str(HERE), str(HERE.parents[1]), *([known] if known else [])])

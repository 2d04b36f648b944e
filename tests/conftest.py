"""Fixtures shared by every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are shared and noisy: no test fails for taking long. Elsewhere each run draws new examples; continuous
# integration repeats the same ones, so that what fails there fails everywhere.
settings.register_profile("mirage", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("mirage")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of published traces kept beside the project; tests that need it skip without it."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip(f"published traces not found: {folder}")
    return folder.parent

"""Fixtures shared by every test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of published traces kept beside the project; tests that need it skip without it."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip(f"published traces not found: {folder}")
    return folder.parent

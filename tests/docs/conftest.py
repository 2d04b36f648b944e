"""The modules that make the site are importable, as they are for mkdocs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root directory of the repository."""
    return ROOT

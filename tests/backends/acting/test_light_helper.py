"""The helper that runs as each user, one process for each action."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mirage

ROOT = Path(mirage.__file__).resolve().parents[1]


def test_the_helper_needs_the_standard_library_alone() -> None:
    """Sudo starts it in a clean environment, by an interpreter that may have no packages; it must be quick."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import mirage.cli.act"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

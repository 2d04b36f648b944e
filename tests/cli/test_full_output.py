"""Output that no disk can hold is one line on stderr."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="a system without /dev/full")
@pytest.mark.parametrize("words", [("--help",), ("plugins",), ("config", "show"), ("version", "--json")])
def test_full_disk_is_named(words: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        argv = [sys.executable, "-m", "mirage", *words]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["mirage: standard output: No space left on device"]

"""The man pages that are kept are those of the commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KEPT = Path(__file__).resolve().parents[2] / "docs" / "man"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By a process of its own, as ``make man`` does: colours and widths of this one must not matter."""
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, "-m", "mirage.cli.man", str(folder)], check=True, env=os.environ)
    return folder


def test_the_pages_are_those_of_the_commands(made: Path) -> None:
    names = {page.name for page in made.iterdir()}
    assert names == {page.name for page in KEPT.iterdir()}, "run `make man`"
    for name in sorted(names):
        assert (KEPT / name).read_text() == (made / name).read_text(), f"{name} is out of date: run `make man`"


def test_every_command_has_a_page(made: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "mirage", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for page in made.glob("mirage-*.1"):
        assert page.stem.removeprefix("mirage-") in shown
    assert "mirage\\-chains" in (made / "mirage.1").read_text()


def test_they_can_be_formatted(made: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    for page in sorted(made.glob("mirage*.1")):
        command = ["groff", "-man", "-Tascii", "-P-cbou", str(page)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == "", page.name
        assert "NAME" in done.stdout

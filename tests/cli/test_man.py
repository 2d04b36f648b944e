"""The man pages that are kept are those of the commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.text import Text
from typer.main import get_command

from mirage.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def _help_texts(command: Any) -> Iterator[str]:
    yield command.help or ""
    yield from (param.help or "" for param in command.params)
    for below in getattr(command, "commands", {}).values():
        yield from _help_texts(below)


def test_help_brackets_are_escaped_for_the_terminal() -> None:
    texts = [text for text in _help_texts(get_command(app)) if "[" in text]
    assert any("@DOLLARS" in text for text in texts)
    for text in texts:
        assert Text.from_markup(text).plain == text.replace(r"\[", "["), text


def test_they_can_be_formatted(made: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    for page in sorted(made.glob("mirage*.1")):
        command = ["groff", "-man", "-Tascii", "-P-cbou", str(page)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == "", page.name
        assert "NAME" in done.stdout

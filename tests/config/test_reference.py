"""The configuration reference: generated from the model, and the shipped file equals the generated one."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field
from typer.testing import CliRunner

from mirage.cli.main import app
from mirage.config.loading import settings
from mirage.config.model import Config, ConfigSection
from mirage.config.reference import _block, reference, tables
from mirage.config.values import Duration  # noqa: TC001 (pydantic reads it when it runs)

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "mirage.toml"


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Hook(ConfigSection):
    """Somebody to tell."""

    url: str
    """Where; there is no default."""
    after: Duration = 0


class Part(ConfigSection):
    """What it is about."""

    span: Duration = 7_200
    long: Duration = 5 * 86_400
    odd: Duration = 3_601
    count: int = 86_400
    """No duration, however round."""
    colour: Colour = Colour.BLUE
    mode: Literal["a", "b"] = "a"
    """a: the one; b: the other."""
    free: Annotated[float | None, Field(examples=[0.5])] = None
    """Not given: chosen at
    each turn."""
    path: str = 'C:\\"x"'
    hooks: tuple[Hook, ...] = ()
    """Who is told."""


class Whole(ConfigSection):
    """Not shown."""

    part: Part = Part()


WRITTEN = r"""
# What it is about.
[part]
#span = "2h"
#long = "5d"
#odd = 3601
# No duration, however round.
#count = 86400
# One of: red, blue.
#colour = "blue"
# a: the one; b: the other.
#mode = "a"
# Not given: chosen at each turn.
# free = 0.5
#path = "C:\\\"x\""
# Who is told.
# [[part.hooks]]
#   # Where; there is no default.
#   url = ""
#   after = 0
"""


def test_each_kind_of_key_is_written_as_people_would() -> None:
    assert [_block(table) for table in tables(Whole)] == [WRITTEN.strip()]


def test_the_shipped_file_is_what_the_command_writes() -> None:
    written = CliRunner().invoke(app, ["config", "reference"])
    assert written.exit_code == 0
    assert written.stdout == SHIPPED.read_text(), "the model has changed: make reference"


def test_nothing_in_it_changes_what_holds() -> None:
    assert Config.model_validate(tomllib.loads(reference())) == Config()


@pytest.mark.parametrize("key", [".".join(key) for key, _ in settings(Config())])
def test_every_key_has_its_line_in_its_section(key: str) -> None:
    section, _, name = key.rpartition(".")
    block = reference().split(f"\n[{section}]\n")[1].split("\n\n")[0]
    lines = (f"#{name} = ", f"# {name} = ", f"# [[{key}]]")
    assert any(line.startswith(lines) for line in block.splitlines())

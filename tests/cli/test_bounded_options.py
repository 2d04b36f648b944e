"""Every number that a command takes has both of its bounds."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from typer.testing import CliRunner

from mirage.cli.arguments import finite
from mirage.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import typer

FOUND_ELSEWHERE = ("submit", "adopt", "predict")
"""Read their options themselves, each bounded as the field that it sets: see tests/domain/test_bounds.py."""


def commands(of: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in of.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.removesuffix("_command").replace("_", "-")
        yield " ".join((*path, name)), command.callback
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, (*path, str(group.name)))


def numbers() -> Iterator[tuple[str, str, set[type], Any]]:
    for name, callback in commands(app):
        if name in FOUND_ELSEWHERE:
            continue
        hints = typing.get_type_hints(callback, include_extras=True)
        hints.pop("return", None)
        for parameter, hint in hints.items():
            assert typing.get_origin(hint) is Annotated, f"{name}: {parameter}"
            kind, about = hint.__origin__, hint.__metadata__[0]
            kinds = {kind, *typing.get_args(kind)}
            if {int, float} & kinds:
                yield name, parameter, kinds, about


def test_command_every_number_has_bounds() -> None:
    found = list(numbers())
    assert len(found) > 40
    assert [f"{name}: {option}" for name, option, _, about in found if None in (about.min, about.max)] == []


def test_command_every_fraction_is_finite() -> None:
    fractions = [(name, option, about) for name, option, kinds, about in numbers() if float in kinds]
    assert len(fractions) > 8
    assert [f"{name}: {option}" for name, option, about in fractions if about.callback is not finite] == []


@pytest.mark.parametrize("value", ["9" * 30, "9" * 5_000, "nan", "inf", "1e400", "-1"])
def test_command_rejects_a_number_out_of_bounds(value: str) -> None:
    for words in (
        ["predict", "--nodes"],
        ["demo", "--seed"],
        ["explain", "svc"],
        ["allocation", "load", "--rate"],
    ):
        result = CliRunner().invoke(app, [*words, value])
        assert result.exit_code == 2, (words, result.output)


@pytest.mark.parametrize("limit", ["5x", "x", "1:2:3:4"])
def test_predict_limit_error_names_the_notations_of_help(limit: str) -> None:
    result = CliRunner().invoke(app, ["predict", "-t", limit])
    assert result.exit_code == 2
    shown = CliRunner().invoke(app, ["predict", "--help"]).output
    for notation in ("90", "1:30:00", "2-00:00:00", "2-12", "UNLIMITED", "48h", "1d12h"):
        assert notation in result.output
        assert notation in shown
        assert CliRunner().invoke(app, ["predict", "-t", notation, "--socket=/nowhere"]).exit_code == 5

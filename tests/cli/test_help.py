"""The help of all commands: by reader, with ``-h`` and ``mirage help``, and examples that can be typed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from test_documented_commands import faults
from typer.main import get_command
from typer.testing import CliRunner

from mirage.cli import predict, submit
from mirage.cli.main import EXAMPLES, app, main

if TYPE_CHECKING:
    from collections.abc import Iterator

PANELS = {"Your jobs", "Site", "Research", "Inside a job"}


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    below = getattr(command, "commands", {})
    if not below:
        yield path
    for name, each in below.items():
        yield from leaves(each, (*path, name))


ALL = sorted(leaves(get_command(app)))


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


def test_every_command_has_a_panel_and_submit_is_first() -> None:
    root: Any = get_command(app)
    assert {command.rich_help_panel for command in root.commands.values()} == PANELS
    code, text = run("--help")
    assert code == 0
    assert [text.index(panel) for panel in ("Your jobs", "Site", "Research", "Inside a job")] == sorted(
        text.index(panel) for panel in PANELS
    )
    names = [line.split()[1] for line in text.splitlines() if line.startswith("│ ") and line[2] != " "]
    assert names[names.index("submit") : names.index("submit") + 3] == ["submit", "adopt", "chains"]


@pytest.mark.parametrize("words", [words for words in ALL if words not in (("chains",), ("queue",))])
def test_h_is_help(words: tuple[str, ...]) -> None:
    short, long = run(*words, "-h"), run(*words, "--help")
    assert short == long
    assert short[0] == 0


@pytest.mark.parametrize(
    "words", [(), ("chains",), ("chain",), ("chain", "logs"), ("submit",), ("evaluate", "waits")]
)
def test_help_of_a_command(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for line in (["help", *words], [*words, "--help"]):
        monkeypatch.setattr(sys, "argv", ["mirage", *line])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]


def test_help_of_no_command_is_a_usage_error() -> None:
    assert run("help", "nope")[0] == 2


def test_examples_can_be_typed() -> None:
    typed = [line for examples in EXAMPLES.values() for line, _ in examples]
    for usage in (submit.USAGE, predict.USAGE):
        shown = usage.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
        assert 2 <= len(shown) <= 4
        typed += [line.partition("   ")[0] or line.strip().partition("   ")[0] for line in shown]
    assert len(typed) > 15
    assert [fault for line in typed if "mirage" in line for fault in faults(line[line.index("mirage") :])] == []


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_are_in_the_help(name: str) -> None:
    code, text = run(name, "--help")
    assert code == 0
    assert 2 <= len(EXAMPLES[name]) <= 4
    assert all(typed in text for typed, _ in EXAMPLES[name])

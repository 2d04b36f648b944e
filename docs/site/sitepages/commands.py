"""The reference of the commands, from the commands themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.cli.man import EXITS, VARIABLES, Argument, Command, DescribedOption, described_commands
from sitepages.markdown import code, fenced, page, plain, table

if TYPE_CHECKING:
    from collections.abc import Iterator

_ABOUT = """\
The output of `mirage --help` and `mirage COMMAND --help`. `mbatch` is short for `mirage submit`. Commands that
print data have `--json`: one document on stdout, everything else on stderr."""


def commands_page() -> str:
    """Every command with its arguments and options."""
    root = described_commands()
    return page(
        "# Commands",
        _ABOUT,
        *(block for command in root.below for block in _blocks(command, 2)),
        "## Exit codes",
        table(("code", "meaning"), ((name, plain(about)) for name, about in EXITS)),
        "## Environment variables",
        table(("variable", "meaning"), ((code(name), plain(about)) for name, about in VARIABLES)),
    )


def _blocks(command: Command, level: int) -> Iterator[str]:
    yield f"{'#' * level} {command.name}"
    if command.usage:
        yield fenced(command.usage)
        return
    yield from (plain(each) for each in command.paragraphs)
    if not command.below:
        yield fenced(_synopsis(command), "console")
    if command.parameters:
        yield table(("option", "meaning", "default"), map(_row, command.parameters))
    if command.examples:
        width = max(len(typed) for typed, _ in command.examples)
        yield fenced("\n".join(f"{typed:<{width}}   # {about}" for typed, about in command.examples), "console")
    for each in command.below:
        yield from _blocks(each, level + 1)


def _synopsis(command: Command) -> str:
    words = [each.metavar if each.required else f"[{each.metavar}]" for each in command.arguments]
    options = ["[OPTIONS]"] if len(command.parameters) > len(words) else []
    return " ".join((command.name, *options, *words))


def _row(parameter: Argument | DescribedOption) -> tuple[str, str, str]:
    if isinstance(parameter, Argument):
        return code(parameter.metavar), plain(parameter.about), ""
    names = ", ".join(code(name) for name in parameter.names)
    default = code(parameter.default) if parameter.default else ""
    return f"{names} {plain(parameter.metavar)}".strip(), plain(parameter.about), default

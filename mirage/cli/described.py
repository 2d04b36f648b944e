"""Description of all commands, from which man pages and the reference of the site are generated."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.cli.examples import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

EXITS = (
    ("0", "Success."),
    ("1", "Error; one line on stderr says what, where and what to do."),
    ("2", "Usage error: an option, argument or name on the command line is invalid."),
    ("3", "The chain, job or file does not exist."),
    ("4", "Rejected: not permitted, or not possible now."),
    ("5", "No daemon replies."),
)
VARIABLES = (
    ("MIRAGE_SOCKET", "Socket of the daemon (default: that of your own daemon, else of the machine's)."),
    ("MIRAGE_URL", "URL of a daemon on the network, such as https://mirage.example.org."),
    ("MIRAGE_TOKEN", "Token for MIRAGE_URL; mirage tokens create prints one."),
    ("NO_COLOR", "Disables colours on a terminal."),
    ("MIRAGE_SECTION__KEY", "For mirage daemon: overrides a key of the configuration file."),
)


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument."""

    metavar: str
    about: str
    required: bool


@dataclass(frozen=True, slots=True)
class Option:
    """An option with all its names."""

    names: tuple[str, ...]
    metavar: str
    """Empty for a flag."""
    about: str
    default: str
    """Empty if it would not inform a reader."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command and its subcommands."""

    name: str
    """In full, such as ``mirage chain show``."""
    paragraphs: tuple[str, ...]
    parameters: tuple[Argument | Option, ...]
    """In help order."""
    below: tuple[Command, ...]
    usage: str = ""
    """Whole help text of a command that parses its options itself."""
    examples: tuple[tuple[str, str], ...] = ()
    """Command lines and what they do."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Positional arguments."""
        return tuple(each for each in self.parameters if isinstance(each, Argument))


def described_commands() -> Command:
    """Return ``mirage`` with all visible commands; imports the whole command line."""
    from typer.main import get_command

    from mirage.cli.main import app

    return _described("mirage", get_command(app))


def _described(name: str, command: Any) -> Command:
    from mirage.cli import adopt, predict, submit

    usages = {"mirage submit": submit.USAGE, "mirage adopt": adopt.USAGE, "mirage predict": predict.USAGE}
    below = getattr(command, "commands", {})
    return Command(
        name,
        tuple(_paragraphs(command.help or "")),
        tuple(_parameters(command)),
        tuple(_described(f"{name} {word}", each) for word, each in below.items() if not each.hidden),
        usages.get(name, ""),
        EXAMPLES.get(name.removeprefix("mirage "), ()),
    )


def _paragraphs(text: str) -> Iterator[str]:
    for part in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        yield " ".join(part.split())


def _parameters(command: Any) -> Iterator[Argument | Option]:
    for param in command.params:
        about = " ".join((param.help or "").split()).replace(r"\[", "[")
        if param.param_type_name == "argument":
            yield Argument((param.metavar or param.name.upper()).strip("[]"), about, param.required)
        elif not param.hidden and param.name not in ("install_completion", "show_completion"):
            metavar = "" if param.is_flag else param.metavar or param.opts[-1].lstrip("-").upper()
            yield Option((*param.opts, *param.secondary_opts), metavar, about, _default(param))


def _default(param: Any) -> str:
    value = param.default
    if isinstance(value, bool) or value in (None, "", (), []) or callable(value) or param.required:
        return ""
    return str(value)

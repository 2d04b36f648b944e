"""The commands as documents tell of them: what man pages and the reference of the site are made of."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.cli.examples import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

EXITS = (
    ("0", "All is well."),
    ("1", "An error; one line on stderr says what, where and what to do."),
    ("2", "Usage: an option, argument or name on the command line cannot be right."),
    ("3", "There is no such chain, job or file."),
    ("4", "Rejected: not permitted, or not now."),
    ("5", "No daemon answers."),
)
VARIABLES = (
    ("MIRAGE_SOCKET", "The daemon's socket, where it is neither one's own nor the machine's."),
    ("MIRAGE_URL", "The daemon's address on the network, such as https://mirage.example.org."),
    ("MIRAGE_TOKEN", "Who one is, there; mirage tokens makes one."),
    ("NO_COLOR", "No colours, also on a terminal."),
    ("MIRAGE_SECTION__KEY", "Of mirage daemon: overrides a key of the configuration file."),
)


@dataclass(frozen=True, slots=True)
class Argument:
    """A word without a name of its own."""

    metavar: str
    about: str
    required: bool


@dataclass(frozen=True, slots=True)
class Option:
    """An option with all its names."""

    names: tuple[str, ...]
    metavar: str
    """What follows it; empty: it is a flag."""
    about: str
    default: str
    """Empty where nothing would be learned from it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and those below it."""

    name: str
    """In full, such as ``mirage chain show``."""
    paragraphs: tuple[str, ...]
    parameters: tuple[Argument | Option, ...]
    """In the order of the command's own help."""
    below: tuple[Command, ...]
    usage: str = ""
    """Of a command that reads its own options: all that is known of them."""
    examples: tuple[tuple[str, str], ...] = ()
    """What to type, and what it does."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Those without names."""
        return tuple(each for each in self.parameters if isinstance(each, Argument))


def described_commands() -> Command:
    """``mirage`` with everything below it that is shown; imports the whole command line."""
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

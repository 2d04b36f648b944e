"""Man pages, generated from the commands: ``python -m mirage.cli.man DIR``."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage import __version__
from mirage.cli.main import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
class DescribedOption:
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
    parameters: tuple[Argument | DescribedOption, ...]
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
        tuple(_split_paragraphs(command.help or "")),
        tuple(_parameters_of(command)),
        tuple(_described(f"{name} {word}", each) for word, each in below.items() if not each.hidden),
        usages.get(name, ""),
        EXAMPLES.get(name.removeprefix("mirage "), ()),
    )


def _split_paragraphs(text: str) -> Iterator[str]:
    for part in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        yield " ".join(part.split())


def _parameters_of(command: Any) -> Iterator[Argument | DescribedOption]:
    for param in command.params:
        about = " ".join((param.help or "").split()).replace(r"\[", "[")
        if param.param_type_name == "argument":
            yield Argument((param.metavar or param.name.upper()).strip("[]"), about, param.required)
        elif not param.hidden and param.name not in ("install_completion", "show_completion"):
            metavar = "" if param.is_flag else param.metavar or param.opts[-1].lstrip("-").upper()
            yield DescribedOption((*param.opts, *param.secondary_opts), metavar, about, _default(param))


def _default(param: Any) -> str:
    value = param.default
    if isinstance(value, bool) or value in (None, "", (), []) or callable(value) or param.required:
        return ""
    return str(value)


def man_pages() -> Iterator[tuple[str, str]]:
    """Yield name and text of every page."""
    root = described_commands()
    yield "mirage.1", _root_page(root)
    for command in root.below:
        yield f"{_page_name(command)}.1", _usage_page(command) if command.usage else _page(command)
    yield "mbatch.1", ".so man1/mirage-submit.1\n"


def write_man_pages(folder: Path) -> None:
    """Write all pages to a directory and delete old ones there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.1"):
        old.unlink()
    for name, text in man_pages():
        (folder / name).write_text(text, encoding="utf-8")


def _root_page(root: Command) -> str:
    lines = [_title("mirage"), *_name("mirage", " ".join(root.paragraphs))]
    lines += [".SH SYNOPSIS", ".B mirage", "[\\-\\-version] [\\-\\-help] \\fICOMMAND\\fR ..."]
    lines += [".SH DESCRIPTION", *_paragraphs(root), ".SH COMMANDS"]
    for command in root.below:
        lines += [".TP", f"\\fB{_escaped(_page_name(command))}\\fR(1)", _escaped(command.paragraphs[0])]
    lines += [*_defined("EXIT STATUS", EXITS), *_defined("ENVIRONMENT", VARIABLES)]
    return _joined([*lines, *_see("sbatch(1)", "squeue(1)")])


def _page(command: Command) -> str:
    lines = [_title(command.name), *_name(command.name, command.paragraphs[0])]
    lines += [".SH SYNOPSIS", *_synopsis(command), ".SH DESCRIPTION", *_paragraphs(command)]
    if options := _parameters(command):
        lines += [".SH OPTIONS", *options]
    if command.below:
        lines.append(".SH COMMANDS")
        for each in command.below:
            lines += [f".SS {_escaped(each.name)}", *_synopsis(each)]
            lines += [".PP", *_paragraphs(each), *_parameters(each)]
    return _joined([*lines, *_defined("EXIT STATUS", EXITS), *_examples(command), *_see("mirage(1)")])


def _usage_page(command: Command) -> str:
    """Return the page of a command that parses its options itself: its usage text."""
    lines = [_title(command.name), *_name(command.name, command.paragraphs[0]), ".SH SYNOPSIS", ".nf"]
    lines += [_escaped(line) for line in command.usage.splitlines()]
    return _joined([*lines, ".fi", *_see("mirage(1)", "sbatch(1)")])


def _examples(command: Command) -> list[str]:
    return _defined("EXAMPLES", command.examples) if command.examples else []


def _page_name(command: Command) -> str:
    return command.name.replace(" ", "-")


def _title(full: str) -> str:
    return f'.TH {full.replace(" ", "-").upper()} 1 "" "Mirage {__version__}" "Mirage"\n.ad l'


def _name(full: str, about: str) -> list[str]:
    return [".SH NAME", f"{_escaped(full.replace(' ', '-'))} \\- {_escaped(about.rstrip('.'))}"]


def _synopsis(command: Command) -> list[str]:
    words = [
        "[\\fIOPTIONS\\fR]",
        *(_argument(each) for each in command.arguments),
        *(["\\fICOMMAND\\fR ..."] if command.below else []),
    ]
    return [f".B {_escaped(command.name)}", " ".join(words)]


def _argument(argument: Argument) -> str:
    name = f"\\fI{_escaped(argument.metavar)}\\fR"
    return name if argument.required else f"[{name}]"


def _parameters(command: Command) -> list[str]:
    lines: list[str] = []
    for each in command.parameters:
        default = f" [{each.default}]" if isinstance(each, DescribedOption) and each.default else ""
        lines += [".TP", _spelled(each), _escaped(each.about + default)]
    return lines


def _spelled(parameter: Argument | DescribedOption) -> str:
    if isinstance(parameter, Argument):
        return f"\\fI{_escaped(parameter.metavar)}\\fR"
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in parameter.names)
    return f"{names} \\fI{_escaped(parameter.metavar)}\\fR" if parameter.metavar else names


def _paragraphs(command: Command) -> list[str]:
    return "\n.PP\n".join(_escaped(each) for each in command.paragraphs).split("\n")


def _defined(heading: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f".SH {heading}"]
    for name, about in pairs:
        lines += [".TP", f"\\fB{_escaped(name)}\\fR", _escaped(about)]
    return lines


def _see(*pages: str) -> list[str]:
    return [".SH SEE ALSO", ", ".join(re.sub(r"(.+)\((\d)\)", r"\\fB\1\\fR(\2)", page) for page in pages)]


def _escaped(text: str) -> str:
    """Escape roff's special characters: backslashes, hyphens, and dots and quotes at the start of a line."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_man_pages(Path(sys.argv[1]))

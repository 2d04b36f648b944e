"""Man pages, made of the commands themselves: ``python -m mirage.cli.man FOLDER``."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_EXITS = (
    ("0", "All is well."),
    ("1", "An error; one line on stderr says what, where and what to do."),
    ("2", "The command was not understood."),
    ("3", "There is no such chain, job or file."),
    ("4", "Refused: not permitted, or not now."),
    ("5", "No daemon answers."),
)
_VARIABLES = (
    ("MIRAGE_SOCKET", "The daemon's socket, where it is neither one's own nor the machine's."),
    ("MIRAGE_URL", "The daemon's address on the network, such as https://mirage.example.org."),
    ("MIRAGE_TOKEN", "Who one is, there; mirage tokens makes one."),
    ("NO_COLOR", "No colours, also on a terminal."),
    ("MIRAGE_SECTION__KEY", "Of mirage daemon: overrides a key of the configuration file."),
)


def man_pages() -> Iterator[tuple[str, str]]:
    """Name and text of every page."""
    from typer.main import get_command

    from mirage.cli.main import app
    from mirage.cli.submit import USAGE

    root: Any = get_command(app)
    commands: dict[str, Any] = {name: each for name, each in root.commands.items() if not each.hidden}
    yield "mirage.1", _root_page(root, commands)
    for name, command in commands.items():
        page = _usage_page("mirage submit", USAGE) if name == "submit" else _page(name, command)
        yield f"mirage-{name}.1", page
    yield "mbatch.1", ".so man1/mirage-submit.1\n"


def write_man_pages(folder: Path) -> None:
    """Into a folder, in the place of what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.1"):
        old.unlink()
    for name, text in man_pages():
        (folder / name).write_text(text, encoding="utf-8")


def _root_page(root: Any, commands: dict[str, Any]) -> str:
    lines = [_title("mirage"), *_name("mirage", root.help)]
    lines += [".SH SYNOPSIS", ".B mirage", "[\\-\\-version] [\\-\\-help] \\fICOMMAND\\fR ..."]
    lines += [".SH DESCRIPTION", *_paragraphs(root.help), ".SH COMMANDS"]
    for name, command in commands.items():
        lines += [".TP", f"\\fBmirage\\-{_escaped(name)}\\fR(1)", _escaped(_first_line(command))]
    lines += [*_defined("EXIT STATUS", _EXITS), *_defined("ENVIRONMENT", _VARIABLES)]
    return _joined([*lines, *_see("sbatch(1)", "squeue(1)")])


def _page(name: str, command: Any) -> str:
    full = f"mirage {name}"
    lines = [_title(full), *_name(full, _first_line(command)), ".SH SYNOPSIS", *_synopsis(full, command)]
    lines += [".SH DESCRIPTION", *_paragraphs(_help(command))]
    lines += _options(command, ".SH OPTIONS")
    if below := getattr(command, "commands", {}):
        lines.append(".SH COMMANDS")
        for each in below.values():
            lines += [f".SS {_escaped(full)} {_escaped(each.name)}", *_synopsis(f"{full} {each.name}", each)]
            lines += [".PP", *_paragraphs(_help(each)), *_options(each, "")]
    return _joined([*lines, *_defined("EXIT STATUS", _EXITS), *_see("mirage(1)")])


def _usage_page(full: str, usage: str) -> str:
    """Of a command that reads its own options: its usage as it stands."""
    lines = [_title(full), *_name(full, "make a chain from a batch script"), ".SH SYNOPSIS", ".nf"]
    lines += [_escaped(line) for line in usage.splitlines()]
    return _joined([*lines, ".fi", *_see("mirage(1)", "sbatch(1)")])


def _title(full: str) -> str:
    return f'.TH {full.replace(" ", "-").upper()} 1 "" "Mirage {__version__}" "Mirage"\n.ad l'


def _name(full: str, about: str) -> list[str]:
    return [".SH NAME", f"{_escaped(full.replace(' ', '-'))} \\- {_escaped(about.rstrip('.'))}"]


def _synopsis(full: str, command: Any) -> list[str]:
    arguments = [_argument(param) for param in command.params if param.param_type_name == "argument"]
    words = [
        "[\\fIOPTIONS\\fR]",
        *arguments,
        *(["\\fICOMMAND\\fR ..."] if getattr(command, "commands", {}) else []),
    ]
    return [f".B {_escaped(full)}", " ".join(words)]


def _argument(param: Any) -> str:
    name = _escaped((param.metavar or param.name.upper()).strip("[]"))
    return f"\\fI{name}\\fR" if param.required else f"[\\fI{name}\\fR]"


def _options(command: Any, heading: str) -> list[str]:
    lines: list[str] = []
    for param in command.params:
        if param.param_type_name == "argument":
            text, spelled = param.help, f"\\fI{_escaped((param.metavar or param.name.upper()).strip('[]'))}\\fR"
        elif param.hidden or param.name in ("install_completion", "show_completion"):
            continue
        else:
            text, spelled = param.help, _spelled(param)
        lines += [".TP", spelled, _escaped(" ".join((text or "").split()) + _default(param))]
    return [heading, *lines] if lines and heading else lines


def _spelled(param: Any) -> str:
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in (*param.opts, *param.secondary_opts))
    if param.is_flag:
        return names
    return f"{names} \\fI{_escaped(param.metavar or param.opts[-1].lstrip('-').upper())}\\fR"


def _default(param: Any) -> str:
    value = param.default
    if isinstance(value, bool) or value in (None, "", (), []) or callable(value) or param.required:
        return ""
    return f" [{value}]"


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "").partition("\f")[0]


def _first_line(command: Any) -> str:
    return " ".join(_help(command).partition("\n\n")[0].split())


def _paragraphs(text: str) -> list[str]:
    paragraphs = [_escaped(" ".join(part.split())) for part in text.split("\n\n")]
    return "\n.PP\n".join(paragraphs).split("\n")


def _defined(heading: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f".SH {heading}"]
    for name, about in pairs:
        lines += [".TP", f"\\fB{_escaped(name)}\\fR", _escaped(about)]
    return lines


def _see(*pages: str) -> list[str]:
    return [".SH SEE ALSO", ", ".join(re.sub(r"(.+)\((\d)\)", r"\\fB\1\\fR(\2)", page) for page in pages)]


def _escaped(text: str) -> str:
    """What roff would take for its own: backslashes, hyphens, and dots and quotes at a line's beginning."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_man_pages(Path(sys.argv[1]))

"""The commands in the documents are commands, and so are their options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from mirage.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "mirage/DESIGN.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(mirage(?: [^`]+)?)`")
_BEGIN = re.compile(r"(?:^|[;|&(]|\bdo|\bexec|[0-9]|srun)\s*(mirage [a-z].*)")


def commands(text: str) -> Iterator[str]:
    """In blocks, with their lines put together, and within sentences."""
    for block in _BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            rest = line.strip()
            while found := _BEGIN.search(rest):
                one, *more = re.split(r"\s(?=[|;&]+\s)|;|\s#|\s{3,}(?=[^-])", found[1], maxsplit=1)
                yield one
                rest = "".join(more)
    yield from (found.replace("\n", " ") for found in _INLINE.findall(_BLOCK.sub("", text)))


def faults(command: str) -> Iterator[str]:
    """What there is not. Behind ``submit``, ``adopt`` and ``predict`` anything of sbatch's may stand."""
    here: Any = get_command(app)
    for word in shlex.split(command.replace("'", ""))[1:]:
        name = word.rstrip(",.:").partition("|")[0]
        if name in ("submit", "adopt", "predict"):
            return
        if hasattr(here, "commands"):
            if name in here.commands:
                here = here.commands[name]
                if word.endswith(","):  # others follow, next to it
                    return
            elif here.name == "evaluate":  # it may be left out
                here = here.commands["replay"]
            elif not name.startswith("-") and name.islower():
                yield f"{command}: {here.name} has no {name}"
                return
        elif re.match(r"--?[a-z]", name):
            option = name.partition("=")[0]
            known = {each for param in here.params for each in (*param.opts, *param.secondary_opts)}
            if option not in known | {"--help", "-h"}:
                yield f"{command}: {here.name} has no {option}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_they_are_commands(document: Path) -> None:
    assert [fault for command in commands(document.read_text()) for fault in faults(command)] == []


def test_they_are_found() -> None:
    pages = [ROOT / "docs/commandline.md", *(ROOT / "docs/benchmarks").glob("*.md")]
    found = [one for page in pages for one in commands(page.read_text())]
    assert any(one.startswith("mirage allocation replay docs/examples/das") for one in found)
    assert len(found) > 50


@pytest.mark.parametrize("wrong", ["mirage allocations run", "mirage allocation replay x --orders y"])
def test_what_is_none_is_named(wrong: str) -> None:
    assert len(list(faults(wrong))) == 1


def test_every_command_is_named() -> None:
    """On the page about the command line; those within ``allocation`` on any page."""
    root: Any = get_command(app)
    page = (ROOT / "docs/commandline.md").read_text()
    text = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    commands = page[page.index("## Commands") : page.index("## Completion")]
    shown = {name for name, command in root.commands.items() if not command.hidden and name != "version"}
    assert {name for name in shown if not re.search(rf"\b{name}\b", commands)} == set()
    assert all(f"mirage {name}" in text for name in shown)
    for name, command in root.commands["allocation"].commands.items():
        for each in getattr(command, "commands", {"": None}):
            assert f"mirage allocation {name} {each}".rstrip() in text


def test_every_bench_is_named() -> None:
    root: Any = get_command(app)
    [what] = [param for param in root.commands["bench"].params if param.param_type_name == "argument"]
    line = re.search(r"^mirage bench NAME +(.*?):\s", (ROOT / "docs/commandline.md").read_text(), re.MULTILINE)
    assert line
    assert line[1].split(", ") == re.split(", | or ", what.help)

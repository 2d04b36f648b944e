"""Output of long commands: files (``-`` means stdout), progress on stderr, seeds of compared runs."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.arguments import UsageError
from mirage.domain.bounds import MOST_WORKERS
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SEEDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_MOST_SEEDS = 10_000

Workers = Annotated[int, typer.Option(min=0, max=MOST_WORKERS, help="Number of processes; 0: one per CPU.")]


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse ``0-9`` or ``1,5,7-9``; raises ``ConfigError``."""
    from mirage.domain.errors import ConfigError

    seeds: list[int] = []
    for part in text.split(","):
        found = _SEEDS.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first or last - first >= _MOST_SEEDS:
            raise ConfigError(
                "--seeds", f"invalid value {part.strip()!r}; expected a number or a range such as 0-9"
            )
        seeds += range(first, last + 1)
    return tuple(seeds)


@contextmanager
def run_progress() -> Iterator[Callable[[int], None]]:
    """Yield an update function of a progress bar, one step per run, shown only on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    console = Console(stderr=True)
    columns = ("runs", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("runs", total=None)
        yield lambda total: bar.update(task, total=total, advance=1)


@contextmanager
def steps(name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield an update function (done, total) of a progress bar, shown only on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = (name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, total=total, completed=done)


@contextmanager
def sentences() -> Iterator[Callable[[str], None]]:
    """Yield a function that reports the current step: one changing line on a terminal, else one line per step."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    with console.status("") as status:
        yield status.update


DocumentOut = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help="Write the JSON document of --json to FILE.")
]
STDOUT = "-"


def check_writable(option: str, name: str) -> None:
    """Raise ``ConfigError`` before the work if the file ``name`` cannot be written."""
    if name in {"", "-"}:
        return
    path = Path(name)
    if path.is_dir():
        raise ConfigError(option, f"{name} is a directory; name a file")
    if not path.parent.is_dir():
        raise ConfigError(option, f"directory {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(option, f"no permission to write {name}")


def write_text(name: str, text: str) -> None:
    """Write to a file, or to stdout if the name is ``-``."""
    if name == "-":
        typer.echo(text, nl=False)
    else:
        Path(name).write_text(text, encoding="utf-8")


def write_json(name: str, document: Any) -> None:
    """Write a document as ``write_text`` does."""
    write_text(name, json.dumps(document, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class OutputReport:
    """Output formats of one comparison, each with its file name; empty: not requested."""

    as_json: bool
    """Print the document on stdout."""
    output: str
    """File of the JSON document."""
    markdown: str = ""
    html: str = ""

    def check(self) -> None:
        """Raise ``ConfigError`` for a file that cannot be written, or for two results on stdout."""
        for option, name in (("--output", self.output), ("--markdown", self.markdown), ("--html", self.html)):
            check_writable(option, name)
        if self.markdown == STDOUT and (self.as_json or self.output == STDOUT):
            raise UsageError("--markdown", "the JSON document already uses stdout; name a file")

    @property
    def takes_stdout(self) -> bool:
        """Whether a result uses stdout, so that nothing else may be printed there."""
        return self.as_json or STDOUT in {self.output, self.markdown}

    def write(
        self,
        document: Callable[[], Any],
        markdown: Callable[[], str] = str,
        html: Callable[[Path], None] = lambda path: None,
    ) -> None:
        """Create and write the requested formats."""
        for name in {name for name in (self.output, STDOUT * self.as_json) if name}:
            write_json(name, document())
        if self.markdown:
            write_text(self.markdown, markdown())
        if self.html:
            html(Path(self.html))

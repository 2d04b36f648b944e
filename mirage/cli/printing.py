"""Printing of foreign texts on a terminal, without control characters; ``-i`` prints repeatedly."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import UsageError
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

Iterate = Annotated[
    int | None,
    typer.Option("-i", "--iterate", metavar="SECONDS", min=1, max=86_400, help="Repeat every SECONDS."),
]


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options for printing a list."""

    layout: str
    sort: str
    heading: bool


def repeated(every: int | None, as_json: bool, once: Callable[[], None]) -> None:
    """Call ``once``, or call it repeatedly with the time above until interrupted. Raises ``UsageError``."""
    if every is None:
        once()
        return
    if as_json:
        raise UsageError("--iterate", "not valid with --json, which prints one document")
    try:
        while True:
            typer.echo(time.strftime("%a %b %d %H:%M:%S %Y"))
            once()
            typer.echo()
            time.sleep(every)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


_WIDE = 400
_UTC = re.compile(r"(?<![\w.:-])[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z(?![\w-])")


def open_streams() -> None:
    """Connect standard streams that the caller has closed (``>&-``) to /dev/null.

    Otherwise the next opened file would take their number, and texts for the terminal would be written into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def in_local_time(text: str) -> str:
    """Write the times of the daemon's sentences (UTC, with a ``Z``) as all other times of a screen are written."""
    return _UTC.sub(_in_local_time, text)


def _in_local_time(found: re.Match[str]) -> str:
    try:
        return f"{datetime.fromisoformat(found[0]).astimezone():%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError):
        return found[0]


def show(text: object, *, err: bool = False) -> None:
    """Print one line with unprintable characters replaced, and times in local time."""
    typer.echo(printable(in_local_time(str(text))), err=err)


def show_table(table: Table) -> None:
    """Print a table, in full width if stdout is not a terminal, so that scripts get whole names.

    Cells with foreign texts must be ``printable``.
    """
    from rich.console import Console

    console = Console()
    (console if console.is_terminal else Console(width=_WIDE)).print(table)


def show_error(error: Exception, program: str = "mirage") -> None:
    """Print an error on stderr and keep its line breaks."""
    for line in f"{program}: {error}".split("\n"):
        show(line, err=True)

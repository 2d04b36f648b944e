"""Printing of foreign texts on a terminal, without control characters and forged lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from mirage.domain.texts import printable

if TYPE_CHECKING:
    from rich.table import Table

_WIDE = 400


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


def show(text: object, *, err: bool = False) -> None:
    """Print one line with unprintable characters replaced."""
    typer.echo(printable(str(text)), err=err)


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

"""The only way by which texts of others come to a terminal: none of them commands it, none makes up a line."""

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
    """Give the three standard streams that the caller has closed (``>&-``) to /dev/null.

    Otherwise the next file that is opened would take their place, and texts for the terminal would get into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def show(text: object, *, err: bool = False) -> None:
    """Print one line, whatever is in it."""
    typer.echo(printable(str(text)), err=err)


def show_table(table: Table) -> None:
    """Print a table; no column is cut if the output is not a terminal, so that scripts find whole names.

    Its cells with texts of others must be ``printable``.
    """
    from rich.console import Console

    console = Console()
    (console if console.is_terminal else Console(width=_WIDE)).print(table)


def show_error(error: Exception, program: str = "mirage") -> None:
    """Print an error on stderr; its own line breaks stay."""
    for line in f"{program}: {error}".split("\n"):
        show(line, err=True)

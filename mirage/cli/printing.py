"""The only way by which texts of others come to a terminal: none of them commands it, none makes up a line."""

from __future__ import annotations

import typer

from mirage.domain.texts import printable


def show(text: object, *, err: bool = False) -> None:
    """Print one line, whatever is in it."""
    typer.echo(printable(str(text)), err=err)


def show_error(error: Exception, program: str = "mirage") -> None:
    """Print an error on stderr; its own line breaks stay."""
    for line in f"{program}: {error}".split("\n"):
        show(line, err=True)

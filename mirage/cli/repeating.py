"""``-i SECONDS``: print a list repeatedly, as ``squeue --iterate``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

Iterate = Annotated[
    int | None,
    typer.Option("-i", "--iterate", metavar="SECONDS", min=1, max=86_400, help="Repeat every SECONDS."),
]


@dataclass(frozen=True, slots=True)
class Shown:
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

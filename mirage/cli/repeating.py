"""``-i SECONDS``: a list repeatedly, as ``squeue --iterate`` prints it."""

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
    typer.Option("-i", "--iterate", metavar="SECONDS", min=1, max=86_400, help="Print again every SECONDS."),
]


@dataclass(frozen=True, slots=True)
class Shown:
    """How a list is printed."""

    layout: str
    sort: str
    heading: bool


def repeated(every: int | None, as_json: bool, once: Callable[[], None]) -> None:
    """``once``, or each time below the hour, until the process is ended. Raises ``UsageError``."""
    if every is None:
        once()
        return
    if as_json:
        raise UsageError("--iterate", "--json prints one document; omit one of both")
    try:
        while True:
            typer.echo(time.strftime("%a %b %d %H:%M:%S %Y"))
            once()
            typer.echo()
            time.sleep(every)
    except KeyboardInterrupt:
        raise SystemExit(130) from None

"""Shared by commands that compare policies: seeds, processes and a progress bar."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.domain.bounds import MOST_WORKERS

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

"""Compare policies: independent runs in separate processes, and tables of figures over several seeds."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mirage.ownprocess import spawning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")


def run_apart(run: Callable[..., T], places: Sequence[tuple[Any, ...]], workers: int) -> Iterator[T]:
    """Results of ``run`` for the arguments of each place, in order; in this process where one is enough."""
    if min(workers, len(places)) <= 1:
        yield from (run(*place) for place in places)
        return
    with ProcessPoolExecutor(min(workers, len(places)), spawning()) as pool:
        yield from pool.map(run, *zip(*places, strict=True))


UNKNOWN = "\N{EN DASH}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


@dataclass(frozen=True, slots=True)
class FigureCell:
    """One figure of one compared policy, over the seeds."""

    mean: str
    spread: str
    """Standard deviation over the seeds; empty for one seed."""
    best: bool


def show(value: float, scale: float, digits: int) -> str:
    """Format a number of a table."""
    return f"{value * scale:,.{digits}f}" if math.isfinite(value) else UNKNOWN


def spread(value: str, deviation: str) -> str:
    """Format a number with its standard deviation, if it has one."""
    return f"{value} {PLUS_MINUS} {deviation}" if deviation else value


def markdown_cell(cell: FigureCell) -> str:
    """The cell in bold where it is the best."""
    text = spread(cell.mean, cell.spread)
    return f"**{text}**" if cell.best else text


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> str:
    """``words``: number of leading columns that hold text."""
    ruler = ("---",) * words + ("---:",) * (len(headings) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, ruler, *rows))


def number(value: float) -> float | None:
    """The JSON value: null for a missing figure."""
    return value if math.isfinite(value) else None

"""Compare policies: independent runs in separate processes, and tables of figures over several seeds."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mirage.ownprocess import spawning

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")
Run = TypeVar("Run")
Policy = TypeVar("Policy", bound="Hashable")


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


def deviation(values: Sequence[float]) -> float:
    """Standard deviation over the seeds; NaN for one seed, and where a figure is missing."""
    return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan


@dataclass(frozen=True, slots=True)
class FigureColumn(Generic[Run]):
    """One figure of every compared policy: a column of every table."""

    heading: str
    key: str
    """Field name in JSON."""
    meaning: str
    of: Callable[[Run], float]
    """The figure of one run."""
    scale: float = 1.0
    digits: int = 1
    best: Callable[[Iterable[float]], float] | None = None
    """Chooses the best of several; ``None``: neither larger nor smaller values are better."""

    def show(self, value: float) -> str:
        """Format the figure of the table."""
        return f"{value * self.scale:,.{self.digits}f}" if math.isfinite(value) else UNKNOWN

    def show_deviation(self, values: Sequence[float]) -> str:
        """Format ``deviation``; empty where it is unknown."""
        found = deviation(values)
        return self.show(found) if math.isfinite(found) else ""

    def cells(self, runs: Mapping[Policy, Sequence[Run]]) -> dict[Policy, FigureCell]:
        """The cell of each policy, from its runs by seed; the best is marked if the figures differ as shown."""
        values = {policy: [float(self.of(run)) for run in those] for policy, those in runs.items()}
        means = {policy: fmean(those) for policy, those in values.items()}
        known = [mean for mean in means.values() if math.isfinite(mean)]
        shown = {policy: self.show(mean) for policy, mean in means.items()}
        differ = len({self.show(mean) for mean in known}) > 1
        best = self.show(self.best(known)) if self.best and differ else ""
        return {
            policy: FigureCell(shown[policy], self.show_deviation(those), best=shown[policy] == best)
            for policy, those in values.items()
        }


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

"""Figures of compared policies as text and numbers: columns of every table, Markdown and JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any

from mirage.allocation.comparing import (
    UNKNOWN,
    FigureCell,
    FigureColumn,
    deviation,
    markdown_cell,
    markdown_table,
    number,
    spread,
)
from mirage.allocation.ddl.outcome import TaskRunFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirage.allocation.ddl.replay import Compared, PolicyPair


def _column(
    heading: str,
    key: str,
    meaning: str,
    scale: float = 1.0,
    digits: int = 0,
    best: Callable[[Iterable[float]], float] | None = min,
) -> FigureColumn[TaskRunFigures]:
    """``key``: field of ``TaskRunFigures``."""
    return FigureColumn(heading, key, meaning, attrgetter(key), scale, digits, best)


COLUMNS = (
    _column("JCT mean, s", "mean_jct", "job completion time: from submission to end, mean over the tasks"),
    _column("JCT p99, s", "p99_jct", "the completion time that 99 % of the tasks do not exceed"),
    _column("makespan, s", "makespan", "from the first submission to the last end"),
    _column("fee, $", "fee", "price times device-hours held, over all tasks", digits=2),
    _column(
        "utilisation, %",
        "utilisation",
        "device-seconds held, of all until the last end",
        scale=100.0,
        digits=1,
        best=None,
    ),
    _column(
        "fragmentation, %",
        "fragmentation",
        "share of device-seconds that were free, of all in times when a task waited",
        scale=100.0,
        digits=1,
    ),
    _column(
        "fairness",
        "mean_fairness",
        "finish-time fairness (Themis): completion time over that in an equal share of the pool, mean",
        digits=2,
    ),
    _column("worst", "worst_fairness", "largest value of that measure over all tasks", digits=1),
    _column("preempted", "preemptions", "number of preemptions", best=None),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One pair of policies in the table."""

    pair: PolicyPair
    cells: tuple[FigureCell, ...]
    change: str
    """Mean JCT against that of the first pair on the same tasks, in percent; empty for the first."""
    change_spread: str
    """Standard deviation over the seeds, in percent; empty for one seed."""


def lines(compared: Compared) -> tuple[Line, ...]:
    """The table, in the order of the pairs."""
    pairs = compared.replay.pairs
    figures = {pair: compared.of(pair) for pair in pairs}
    cells = [column.cells(figures) for column in COLUMNS]
    return tuple(
        Line(
            pair,
            tuple(each[pair] for each in cells),
            *(_change(compared, pair) if pair != pairs[0] else ("", "")),
        )
        for pair in pairs
    )


def markdown(compared: Compared) -> str:
    """The table in Markdown, with a description of the runs."""
    headings = ("ordering", "placer", *(column.heading for column in COLUMNS), "JCT against the first")
    rows = [
        (
            line.pair.ordering,
            line.pair.placer,
            *(markdown_cell(cell) for cell in line.cells),
            change_of(line) or UNKNOWN,
        )
        for line in lines(compared)
    ]
    return f"{describe(compared)}\n\n{markdown_table(headings, rows, words=2)}\n"


def document(compared: Compared) -> dict[str, Any]:
    """All figures as JSON, without the lanes; missing figures are null."""
    replay, trace = compared.replay, compared.trace
    rules = asdict(replay.rules)
    return {
        "trace": replay.source.trace,
        "format": str(replay.source.format),
        "pool": replay.source.pool,
        "nodes": len(trace.pool.node_names),
        "devices": len(trace.pool.device_node),
        "speeds": replay.source.speeds or None,
        "rules": rules | {"quantum": rules["quantum"] if math.isfinite(rules["quantum"]) else None},
        "rows": trace.rows,
        "tasks": len(trace.tasks),
        "left_out": [{"why": why, "rows": count} for why, count in trace.left_out],
        "seeds": list(replay.seeds),
        "pairs": [_pair_document(compared, pair) for pair in replay.pairs],
    }


def describe(compared: Compared) -> str:
    """A description of the runs, in a sentence or two."""
    replay, trace = compared.replay, compared.trace
    size = f"{len(trace.pool.node_names):,} nodes with {len(trace.pool.device_node):,} devices"
    tasks = f"{len(trace.tasks):,} tasks"
    many = len(replay.seeds) > 1
    seeds = f"{len(replay.seeds)} sets of {tasks}" if many else tasks
    moves = " and moves" if replay.rules.move else ""
    preempt = f"with preemption{moves}" if replay.rules.preempt else "without preemption"
    strict = ", without passing the first task that does not fit" if replay.rules.strict else ""
    come = "drawn by" if replay.source.drawn else "of"
    said = f"{seeds} {come} {replay.source.trace} on {size}, {preempt}{strict}."
    return " ".join(
        [said, *(f"{count:,} of {trace.rows:,} rows {why} are left out." for why, count in trace.left_out)]
    )


def _pair_document(compared: Compared, pair: PolicyPair) -> dict[str, Any]:
    names = [field.name for field in fields(TaskRunFigures)]
    figures = compared.of(pair)
    return {
        "ordering": pair.ordering,
        "placer": pair.placer,
        "mean": {name: number(_mean(figures, name)) for name in names},
        "deviation": {name: number(_deviation(figures, name)) for name in names},
        "runs": [
            {"seed": run.seed} | {name: number(getattr(run.figures, name)) for name in names}
            for run in compared.runs
            if run.pair == pair
        ],
    }


def change_of(line: Line) -> str:
    """Mean JCT of a pair against the first, with its deviation; empty for the first."""
    return spread(line.change, line.change_spread)


def _change(compared: Compared, pair: PolicyPair) -> tuple[str, str]:
    """Mean of the ratios by seed and, over several seeds, their standard deviation."""
    first = compared.of(compared.replay.pairs[0])
    ratios = [
        100 * (mine.mean_jct / base.mean_jct - 1) for mine, base in zip(compared.of(pair), first, strict=True)
    ]
    mean, found = fmean(ratios), deviation(ratios)
    return (
        f"{mean:+.1f} %".replace("-", "\N{MINUS SIGN}") if math.isfinite(mean) else "",
        f"{found:.1f} %" if math.isfinite(found) else "",
    )


def _mean(figures: Sequence[TaskRunFigures], name: str) -> float:
    return fmean(float(getattr(one, name)) for one in figures)


def _deviation(figures: Sequence[TaskRunFigures], name: str) -> float:
    return deviation([float(getattr(one, name)) for one in figures])

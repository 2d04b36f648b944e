"""``mirage allocation replay``: simulate tasks in a pool with ordering and placement policies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import finite
from mirage.cli.asking import AsJson
from mirage.cli.outputs import DocumentOut, Report
from mirage.cli.sidebyside import Workers, parse_seeds, run_progress
from mirage.cli.usage import value_of
from mirage.domain.bounds import YEAR

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from mirage.allocation.ddl.replay import Compared, Pair, TaskReplay

Trace = Annotated[str, typer.Argument(metavar="TRACE", help="Task trace, or a mix from which to draw tasks.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format of TRACE: muri, openb, jobs (parquet of Philly and Helios), deepshare or mix.",
    ),
]
PoolText = Annotated[
    str,
    typer.Option(
        "--pool",
        metavar="POOL",
        help=r"Pool: NODESxDEVICES\[:KIND]\[@DOLLARS],... (DOLLARS per device and hour), or openb's node file.",
    ),
]
OrderingName = Annotated[str, typer.Option("--ordering", metavar="NAME", help="Ordering policy.")]
PlacerName = Annotated[str, typer.Option("--placer", metavar="NAME", help="Placement policy.")]
Compare = Annotated[
    str,
    typer.Option(
        metavar="PAIRS", help="Scheduling policies to compare, comma-separated: fifo+first-fit,sjf+best-fit."
    ),
]
Speeds = Annotated[
    str,
    typer.Option(
        metavar="TABLE",
        help="Throughput table: deepshare:DIR, gavel:FILE or measured:FILE. Default: equal speed on all devices.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Strict order: do not backfill past the first task that does not fit.")
]
Preempt = Annotated[bool, typer.Option("--preempt", help="Allow preemption of tasks with a checkpoint.")]
Move = Annotated[
    bool, typer.Option("--move", help="With --preempt: also move tasks to other devices to make room.")
]
Quantum = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=YEAR,
        callback=finite,
        metavar="SECONDS",
        help="Time between scheduling decisions, in seconds; 0: only when a task arrives or ends.",
    ),
]
Seeds = Annotated[str, typer.Option(metavar="SEEDS", help="Random seeds of the drawn task sets: 0-9, or 1,5,7-9.")]
MarkdownOut = Annotated[
    str, typer.Option("--markdown", metavar="OUT", help="Write the table in Markdown; - is stdout.")
]
HtmlOut = Annotated[
    str,
    typer.Option(
        "--html", metavar="OUT", help="Write a report with the timelines of all devices as one HTML file."
    ),
]


def task_replay_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    trace: Trace,
    *,
    format_name: Format,
    pool: PoolText,
    ordering: OrderingName = "sjf",
    placer: PlacerName = "best-fit",
    compare: Compare = "",
    speeds: Speeds = "",
    strict: Strict = False,
    preempt: Preempt = False,
    move: Move = False,
    quantum: Quantum = 0.0,
    seeds: Seeds = "0",
    workers: Workers = 0,
    as_json: AsJson = False,
    output: DocumentOut = "",
    markdown_out: MarkdownOut = "",
    html_out: HtmlOut = "",
) -> None:
    """Simulate tasks in a pool: completion times, makespan, cost and fairness of one or several policies.

    All policies get the same tasks. Results are means over the seeds with standard deviations.
    """
    from rich.console import Console

    from mirage.allocation.ddl.dispatch import Rules
    from mirage.allocation.ddl.formats.readers import TaskFormat, TaskSource
    from mirage.allocation.ddl.replay import TaskReplay
    from mirage.cli.arguments import parse_choice

    source = TaskSource(trace, parse_choice(TaskFormat, format_name, "--format"), pool, speeds)
    report = Report(as_json, output, markdown_out, html_out)
    report.check()
    rules = Rules(strict=strict, preempt=preempt, move=move, quantum=quantum or float("inf"))
    pairs = _pairs(compare) if compare else (_pair(ordering, placer),)
    compared = _play(TaskReplay(source, pairs, rules, parse_seeds(seeds)), workers or os.cpu_count() or 1)
    _write(report, compared)
    if not report.takes_stdout:
        _show(Console(), compared)


def _pair(ordering: str, placer: str) -> Pair:
    from mirage.allocation.ddl import registry
    from mirage.allocation.ddl.replay import Pair

    with value_of("--ordering"):
        registry.ordering(ordering)
    with value_of("--placer"):
        registry.placer(placer)
    return Pair(ordering, placer)


def _pairs(text: str) -> tuple[Pair, ...]:
    from mirage.allocation.ddl.replay import parse_pair

    with value_of("--compare"):
        return tuple(parse_pair(part) for part in text.split(","))


def _play(replay: TaskReplay, workers: int) -> Compared:
    from mirage.allocation.ddl.replay import play_all

    with run_progress() as advance:
        return play_all(replay, workers, advance)


def _write(report: Report, compared: Compared) -> None:
    from mirage.allocation.ddl.comparison import document, markdown

    def page(path: Path) -> None:
        from mirage.replay.taskpage import write_task_page

        write_task_page(path, compared)

    report.write(lambda: document(compared), lambda: markdown(compared), page)


def _show(console: Console, compared: Compared) -> None:
    from mirage.allocation.ddl.comparison import describe

    table = _table(compared)
    fits = console.measure(table, options=console.options.update(width=10_000)).minimum <= console.width
    console.print(describe(compared), markup=False, highlight=False)
    console.print(table if fits else _turned(compared))


def _table(compared: Compared) -> Table:
    """Return a table with one row per policy."""
    from rich.table import Table
    from rich.text import Text

    from mirage.allocation.ddl.comparison import COLUMNS, lines

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("pair", no_wrap=True)
    for heading in (*(column.heading.replace(", ", "\n") for column in COLUMNS), "JCT vs\nfirst"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines(compared):
        cells = (Text(_stacked(cell.mean, cell.spread), "bold" * cell.best) for cell in line.cells)
        table.add_row(Text(line.pair.name), *cells, _stacked(line.change, line.change_spread))
    return table


def _turned(compared: Compared) -> Table:
    """Return a table with one row per figure, for narrow terminals."""
    from rich.table import Table
    from rich.text import Text

    from mirage.allocation.ddl.comparison import COLUMNS, lines

    rows = lines(compared)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for line in rows:
        table.add_column(f"{line.pair.ordering}\n{line.pair.placer}", justify="right", overflow="fold")
    for i, column in enumerate(COLUMNS):
        cells = [line.cells[i] for line in rows]
        table.add_row(
            column.heading, *(Text(_stacked(cell.mean, cell.spread), "bold" * cell.best) for cell in cells)
        )
    table.add_row("JCT against the first", *(_stacked(line.change, line.change_spread) for line in rows))
    return table


def _stacked(value: str, spread: str) -> str:
    return f"{value}\n\N{PLUS-MINUS SIGN} {spread}" if spread else value

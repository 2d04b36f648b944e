"""``mirage allocation requests replay``: compare policies on simulated requests with deadlines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.asking import AsJson
from mirage.cli.outputs import DocumentOut, Report
from mirage.cli.sidebyside import Workers, parse_seeds, run_progress
from mirage.cli.usage import value_of, value_unless_file

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from mirage.allocation.figuretable import Cell
    from mirage.allocation.inference.comparison import Line
    from mirage.allocation.inference.replay import Compared

Scenarios = Annotated[
    list[str],
    typer.Argument(
        metavar="SCENARIO...", help="Scenarios: built-in names, such as light or mixed-heavy, or TOML files."
    ),
]
PolicyName = Annotated[
    str,
    typer.Option("--policy", metavar="NAME", help="Scheduling policy: which request runs next on which device."),
]
Compare = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Policies to compare, comma-separated: fcfs,edf,llf:late-last; all: all untrained policies.",
    ),
]
Seeds = Annotated[
    str, typer.Option(metavar="SEEDS", help="Random seeds of the generated requests: 0-9, or 1,5,7-9.")
]
Bounded = Annotated[
    bool,
    typer.Option("--bound", help="Also compute the upper bound of a policy that knows all requests in advance."),
]
MarkdownOut = Annotated[
    str, typer.Option("--markdown", metavar="OUT", help="Write the tables in Markdown; - is stdout.")
]
HtmlOut = Annotated[
    str,
    typer.Option(
        "--html", metavar="OUT", help="Write a report with the timelines of all devices as one HTML file."
    ),
]

_FEW = 3
"""Maximum number of policies whose figures all fit side by side."""


def request_replay_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    scenarios: Scenarios,
    *,
    policy: PolicyName = "edf",
    compare: Compare = "",
    seeds: Seeds = "0",
    bound: Bounded = False,
    workers: Workers = 0,
    as_json: AsJson = False,
    output: DocumentOut = "",
    markdown_out: MarkdownOut = "",
    html_out: HtmlOut = "",
) -> None:
    """Simulate requests on devices of several kinds: met deadlines, latency, energy and fairness by policy.

    All policies get the same requests. Results are means over the seeds with standard deviations.
    """
    from rich.console import Console

    from mirage.allocation.inference.registry import named_policies, request_policy
    from mirage.allocation.inference.replay import RequestReplay, play_all

    report = Report(as_json, output, markdown_out, html_out)
    report.check()
    with value_of("--compare" if compare else "--policy"):
        names = named_policies(compare or policy)
        for each in names:
            request_policy(each)
    check_scenarios(scenarios)
    replay = RequestReplay(tuple(scenarios), names, parse_seeds(seeds), logged=bool(html_out), bounded=bound)
    with run_progress() as advance:
        compared = play_all(replay, workers or os.cpu_count() or 1, advance)
    _write(report, compared)
    if not report.takes_stdout:
        _show(Console(), compared)


def check_scenarios(names: list[str]) -> None:
    """Raise ``UsageError`` for a name that is neither built in nor a file, ``ConfigError`` for a bad file."""
    from mirage.allocation.inference.workload.scenariofile import find_scenario

    for name in names:
        with value_unless_file("SCENARIO", name):
            find_scenario(name)


def _write(report: Report, compared: Compared) -> None:
    from mirage.allocation.inference.comparison import document, markdown

    def page(path: Path) -> None:
        from mirage.replay.requestpage import write_request_page

        write_request_page(path, compared)

    report.write(lambda: document(compared), lambda: markdown(compared), page)


def _show(console: Console, compared: Compared) -> None:
    from mirage.allocation.inference.comparison import describe

    for scenario in compared.replay.scenarios:
        console.print(describe(compared, scenario), markup=False, highlight=False)
        console.print(_table(compared, scenario))
        console.print()


def _table(compared: Compared, scenario: str) -> Table:
    """Return all figures, one per row, for few policies; for many, the main figures, one policy per row."""
    from rich.table import Table

    from mirage.allocation.inference.comparison import bounded_lines, tenants

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    rows = bounded_lines(compared, scenario)
    if len(compared.replay.policies) <= _FEW:
        _fill_by_figure(table, rows, tenants(compared, scenario))
    else:
        _fill_by_policy(table, rows)
    return table


def _fill_by_figure(table: Table, rows: tuple[Line, ...], tenants: tuple[str, ...]) -> None:
    """Add one row per figure, the SLA of each tenant last."""
    from mirage.allocation.inference.comparison import COLUMNS

    headings = (*(column.heading for column in COLUMNS), *(f"SLA of {name}, %" for name in tenants))
    for line in rows:
        table.add_column(line.policy, justify="right", overflow="fold")
    for heading, *cells in zip(headings, *((*line.cells, *line.tenants) for line in rows), strict=True):
        table.add_row(heading, *map(_told, cells))


def _fill_by_policy(table: Table, rows: tuple[Line, ...]) -> None:
    from mirage.allocation.inference.comparison import COLUMNS, FOREMOST

    places = [place for place, column in enumerate(COLUMNS) if column.key in FOREMOST]
    for place in places:
        table.add_column(COLUMNS[place].heading, justify="right", no_wrap=True)
    for line in rows:
        table.add_row(line.policy, *(_told(line.cells[place]) for place in places))


def _told(cell: Cell) -> Text:
    from rich.text import Text

    from mirage.allocation.figuretable import spread

    return Text(spread(cell.mean, cell.spread), "bold" * cell.best)

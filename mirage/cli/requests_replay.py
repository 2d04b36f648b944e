"""``mirage allocation requests replay``: which requests would have been answered in time, by policy."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.sidebyside import Workers, parse_seeds, run_progress, write_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from mirage.allocation.inference.comparison import Cell
    from mirage.allocation.inference.replay import Compared

Scenarios = Annotated[
    list[str], typer.Argument(metavar="SCENARIO...", help="light, medium, heavy, mixed-heavy, or a TOML file.")
]
PolicyName = Annotated[str, typer.Option("--policy", metavar="NAME", help="Which request runs where next.")]
Compare = Annotated[
    str,
    typer.Option(metavar="NAMES", help="Policies side by side instead, commas between: fcfs,edf,llf:late-last."),
]
Seeds = Annotated[str, typer.Option(metavar="SEEDS", help="Of the requests that are drawn: 0-9, or 1,5,7-9.")]
JsonOut = Annotated[str, typer.Option("--json", metavar="OUT", help="Write the figures as JSON; - is stdout.")]
MarkdownOut = Annotated[
    str, typer.Option("--markdown", metavar="OUT", help="Write the tables in Markdown; - is stdout.")
]
HtmlOut = Annotated[
    str, typer.Option("--html", metavar="OUT", help="Write a report with lanes of all units as one HTML file.")
]


def request_replay_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    scenarios: Scenarios,
    *,
    policy: PolicyName = "edf",
    compare: Compare = "",
    seeds: Seeds = "0",
    workers: Workers = 0,
    json_out: JsonOut = "",
    markdown_out: MarkdownOut = "",
    html_out: HtmlOut = "",
) -> None:
    """Replay requests on a simulated system: deadlines kept, latency, energy and fairness by policy.

    All policies see the same requests. Figures are means over the seeds, with their standard deviations.
    """
    from rich.console import Console

    from mirage.allocation.inference.replay import RequestReplay, play_all
    from mirage.cli.arguments import check_writable

    for option, name in (("--json", json_out), ("--markdown", markdown_out), ("--html", html_out)):
        check_writable(option, name)
    names = tuple(name.strip() for name in (compare or policy).split(","))
    replay = RequestReplay(tuple(scenarios), names, parse_seeds(seeds), logged=bool(html_out))
    with run_progress() as advance:
        compared = play_all(replay, workers or os.cpu_count() or 1, advance)
    _write_files(compared, json_out, markdown_out, html_out)
    if "-" not in {json_out, markdown_out}:
        _show(Console(), compared)


def _write_files(compared: Compared, json_out: str, markdown_out: str, html_out: str) -> None:
    from mirage.allocation.inference.comparison import document, markdown

    if json_out:
        write_text(json_out, json.dumps(document(compared), indent=1) + "\n")
    if markdown_out:
        write_text(markdown_out, markdown(compared))
    if html_out:
        from mirage.replay.requestpage import write_request_page

        write_request_page(Path(html_out), compared)


def _show(console: Console, compared: Compared) -> None:
    from mirage.allocation.inference.comparison import describe

    for scenario in compared.replay.scenarios:
        console.print(describe(compared, scenario), markup=False, highlight=False)
        console.print(_table(compared, scenario))
        console.print()


def _table(compared: Compared, scenario: str) -> Table:
    """A row for each figure, the satisfaction of each tenant at the end; a column for each policy."""
    from rich.table import Table
    from rich.text import Text

    from mirage.allocation.inference.comparison import COLUMNS, lines, tenants

    rows = lines(compared, scenario)
    headings = (
        *(column.heading for column in COLUMNS),
        *(f"SLA of {name}, %" for name in tenants(compared, scenario)),
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for line in rows:
        table.add_column(line.policy, justify="right", overflow="fold")
    for heading, *cells in zip(headings, *((*line.cells, *line.tenants) for line in rows), strict=True):
        table.add_row(heading, *(Text(_told(cell), "bold" * cell.best) for cell in cells))
    return table


def _told(cell: Cell) -> str:
    return f"{cell.mean} \N{PLUS-MINUS SIGN} {cell.spread}" if cell.spread else cell.mean

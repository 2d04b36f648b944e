"""``mirage allocation pack``: compare how full placement policies fill a pool, as in the FGD paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.allocation_replay import Seeds
from mirage.cli.asking import AsJson
from mirage.cli.outputs import DocumentOut, Report
from mirage.cli.sidebyside import Workers, parse_seeds
from mirage.cli.usage import value_of

if TYPE_CHECKING:
    from rich.table import Table

    from mirage.allocation.ddl.packing import Packed

Nodes = Annotated[Path, typer.Option(metavar="CSV", help="Nodes, in the format of openb.")]
Pods = Annotated[Path, typer.Option(metavar="CSV", help="Tasks, in the format of openb.")]
Placers = Annotated[
    str, typer.Option("--placer", metavar="NAMES", help="Placement policies to compare, comma-separated.")
]
FillTo = Annotated[
    int, typer.Option("--fill", min=1, max=1000, help="Add tasks until they request N percent of the pool.")
]


def pack_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    *,
    nodes: Nodes,
    pods: Pods,
    placers: Placers = "best-fit,fgd,foresight",
    seeds: Seeds = "42-51",
    fill: FillTo = 130,
    workers: Workers = 0,
    as_json: AsJson = False,
    output: DocumentOut = "",
) -> None:
    """Fill a pool with tasks that never end, and print the allocated share for each requested share.

    Tasks and nodes are in random order, the same for every placement policy. Results are means over the seeds.
    """
    from rich.console import Console

    from mirage.allocation.ddl.formats.openb import read_openb
    from mirage.allocation.ddl.packing import document, pack_all
    from mirage.allocation.ddl.registry import placer

    report = Report(as_json, output)
    report.check()
    names = [name.strip() for name in placers.split(",")]
    for name in names:
        with value_of("--placer"):
            placer(name)
    chosen = parse_seeds(seeds)
    trace = read_openb(pods, nodes)
    packed = pack_all(trace.tasks, trace.pool, names, chosen, fill, workers or os.cpu_count() or 1)
    report.write(lambda: document(packed, fill))
    if not report.takes_stdout:
        Console().print(_table(packed, fill))


def _table(packed: tuple[Packed, ...], fill: int) -> Table:
    """Return a table with one row per placement policy and one column per requested share."""
    from rich.table import Table

    from mirage.allocation.ddl.packing import marks_to, summarise

    several = len({one.seed for one in packed}) > 1
    table = Table(
        box=None,
        pad_edge=False,
        header_style="dim",
        title="Allocated devices (%) by requested share",
        title_justify="left",
    )
    table.add_column("placer", no_wrap=True)
    for mark in marks_to(fill):
        table.add_column(f"{mark} %", justify="right", no_wrap=True)
    for name, fills in summarise(packed, fill).items():
        cells = [
            f"{one.mean:.2f}\n\N{PLUS-MINUS SIGN} {one.spread:.2f}" if several else f"{one.mean:.2f}"
            for one in fills
        ]
        table.add_row(name, *cells)
    return table

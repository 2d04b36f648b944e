"""``mirage allocation speeds``: measured throughput of tasks, alone and next to others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.asking import AsJson
from mirage.cli.outputs import check_writable, write_json

if TYPE_CHECKING:
    from mirage.allocation.ddl.speeds import Measurements

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="State directory, or the task file.")]
Out = Annotated[
    str,
    typer.Option("-o", "--output", metavar="FILE", help="Write the throughput table, for --speeds measured:FILE."),
]


def speeds_command(folder: Folder, *, out: Out = "", as_json: AsJson = False) -> None:
    """Show the throughput that tasks reported: by number of nodes, kind of device and neighbour tasks.

    All links of the chain count. A speed is relative to the same model on the fewest nodes.
    """
    from mirage.allocation.ddl.estimation import estimate
    from mirage.allocation.ddl.formats.measured import document
    from mirage.allocation.engine.run import kept_state
    from mirage.allocation.engine.status import read_ledger

    check_writable("--output", out)
    evidence = read_ledger(kept_state(folder, os.environ)).evidence
    measured = estimate(evidence)
    content = document(measured, evidence)
    if out:
        write_json(out, content)
    if as_json:
        typer.echo(json.dumps(content))
    elif not out:
        _show(measured, content)


def _show(measured: Measurements, content: dict[str, Any]) -> None:
    from mirage.cli.columns import print_table

    runs = content["runs"]
    if not runs:
        typer.echo("no measurements: tasks must name a model and report their progress")
        return
    rows: list[tuple[str, ...]] = [("MODEL", "DEVICES", "NODES", "KIND", "SPEED", "PER SECOND", "HOURS")]
    rows += [_row(run, measured) for run in runs]
    print_table(rows)
    beside: list[tuple[str, ...]] = [("BESIDE", "", "KEEPS")]
    beside += [(_name(runs[row]), _name(runs[other]), f"{left:.2f}") for row, other, left in content["beside"]]
    if len(beside) > 1:
        typer.echo()
        print_table(beside)


def _row(run: dict[str, Any], measured: Measurements) -> tuple[str, ...]:
    speed = run["throughput"] / measured.reference(run["model"], run["devices"])
    hours = run["seconds"] / 3600
    numbers = (f"{speed:.2f}", f"{run['throughput']:.4g}", f"{hours:.1f}")
    return (run["model"], str(run["devices"]), str(run["spread"]), run["kind"], *numbers)


def _name(run: dict[str, Any]) -> str:
    return f"{run['model']}, {run['devices']} on {run['spread']} {run['kind']}"

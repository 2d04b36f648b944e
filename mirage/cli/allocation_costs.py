"""``mirage allocation costs``: build, measure and show cost tables of networks on processing units."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import value_of, value_unless_file
from mirage.cli.shared_options import OutputCommand
from mirage.domain.bounds import HIGHEST_FACTOR

if TYPE_CHECKING:
    from rich.table import Table

    from mirage.allocation.inference.costs.tableops import ModelOnKind
    from mirage.allocation.inference.costs.tables import CostManifest
    from mirage.domain.inference import CostTable

costs_app = typer.Typer(no_args_is_help=True, help="Build and show cost tables: latency and energy of networks.")

Out = Annotated[
    Path,
    typer.Option(
        "-o", "--output", metavar="TABLE", help="Cost table to write; the manifest is written next to it."
    ),
]
Networks = Annotated[
    str, typer.Option("--networks", metavar="NAMES", help="Networks, comma-separated (default: all).")
]
Arrays = Annotated[str, typer.Option("--arrays", metavar="NAMES", help="Arrays, comma-separated (default: all).")]
Kept = Annotated[Path, typer.Option("--kept", metavar="DIR", help="Directory of layer costs already computed.")]
Pieces = Annotated[
    int,
    typer.Option(
        "--pieces",
        min=0,
        max=HIGHEST_FACTOR,
        help="Join layers to at most N segments per network; 0: do not join.",
    ),
]
Models = Annotated[
    list[Path],
    typer.Argument(metavar="MODEL.onnx...", exists=True, dir_okay=False, help="ONNX models to measure."),
]
Units = Annotated[
    list[str],
    typer.Option("--unit", metavar="NAME=DEVICE:N", help="Device to measure on: cpu2=threads:2 or gpu=cuda:0."),
]
Warmup = Annotated[int, typer.Option(min=0, max=HIGHEST_FACTOR, help="Number of warm-up runs.")]
Measured = Annotated[int, typer.Option("--repeats", min=2, max=HIGHEST_FACTOR, help="Number of measured runs.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Name (edge) or file of a cost table.")]
TableNames = Annotated[list[str], typer.Argument(metavar="TABLE...", help="Names or files of cost tables.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Output directory; created if missing.")]
JsonOut = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


@costs_app.command("build", cls=OutputCommand)
def build_command(
    *,
    out: Out,
    networks: Networks = "",
    arrays: Arrays = "",
    kept: Kept = Path("costs-kept"),
    pieces: Pieces = 0,
) -> None:
    """Compute a cost table with the cost model, from Mirage's layer lists and arrays. Takes some minutes.

    Requires the extra costmodel. Results are stored in --kept: an interrupted run continues there.
    """
    from mirage.allocation.inference.costs.arrays import array, array_names, network, network_names
    from mirage.allocation.inference.costs.building import build
    from mirage.allocation.inference.costs.tableops import group_pieces

    with value_of("--networks"):
        chosen = [network(name) for name in _names(networks) or network_names()]
    with value_of("--arrays"):
        on = [array(name) for name in _names(arrays) or array_names()]
    table, manifest = build(chosen, on, kept, _progress)
    _write(group_pieces(table, pieces) if pieces else table, out, manifest)


@costs_app.command("check")
def check_command() -> None:
    """Check the cost model: reproduce its authors' ResNet-18 result. Takes some minutes."""
    from mirage.allocation.inference.costs.costmodel import check_cost_model

    checked = check_cost_model()
    typer.echo(checked)
    if not checked.intact:
        raise typer.Exit(1)


@costs_app.command("profile", cls=OutputCommand)
def profile_command(
    models: Models,
    *,
    units: Units,
    out: Out,
    warmup: Warmup = 5,
    repeats: Measured = 50,
) -> None:
    """Measure networks with ONNX Runtime on real devices; write a cost table with one segment per network."""
    from mirage.allocation.inference.costs.profiling import ProfileRepeats, parse_unit, profile

    with value_of("--unit"):
        parsed = [parse_unit(text) for text in units]
    table, manifest = profile(models, parsed, ProfileRepeats(warmup, repeats), _progress)
    _write(table, out, manifest)
    for name in {unit.energy for unit in manifest.units.values()}:
        typer.echo(f"energy: {name}", err=True)


@costs_app.command("examples")
def examples_command(folder: Folder) -> None:
    """Write small example networks (convnet, MLP, transformer block) to try the profiler and the gateway."""
    from mirage.allocation.inference.costs.examples import write_examples

    for path in write_examples(folder):
        typer.echo(path)


@costs_app.command("merge", cls=OutputCommand)
def merge_command(tables: TableNames, *, out: Out) -> None:
    """Merge several cost tables into one, with more networks or more kinds of devices."""
    from mirage.allocation.inference.costs.tableops import merge_manifests, merge_tables
    from mirage.allocation.inference.costs.tables import sources

    merged = merge_tables([_table(name) for name in tables])
    _write(merged, out, merge_manifests(sources(tables)))


@costs_app.command("show")
def show_command(table: TableName = "edge", *, json_out: JsonOut = False) -> None:
    """Show latency, energy and bandwidth of each network alone on each kind of device."""
    from rich.console import Console

    from mirage.allocation.inference.costs.tableops import summarise
    from mirage.allocation.inference.costs.tables import cost_manifest

    rows = summarise(_table(table))
    manifest = cost_manifest(table)
    if json_out:
        source = manifest.model_dump(mode="json") if manifest else None
        typer.echo(json.dumps({"models": [asdict(row) for row in rows], "manifest": source}, indent=1))
        return
    Console().print(_drawn(rows, f"{table} ({manifest.made_by if manifest else 'unknown origin'})"))


def _table(name: str) -> CostTable:
    from mirage.allocation.inference.costs.tables import cost_table

    with value_unless_file("TABLE", name):
        return cost_table(name)


def _drawn(rows: list[ModelOnKind], title: str) -> Table:
    from rich.table import Table

    drawn = Table("network", "segments", "on", "ms", "compute", "mJ", "GB/s", "fastest", title=title)
    for row in rows:
        drawn.add_row(
            row.model,
            str(row.pieces),
            row.kind,
            f"{row.seconds * 1e3:.3f}",
            f"{row.compute_share:.0%}",
            f"{row.joules * 1e3:.2f}",
            f"{row.bytes_a_second / 1e9:.2f}",
            str(row.fastest),
        )
    return drawn


def _write(table: CostTable, out: Path, manifest: CostManifest) -> None:
    from mirage.allocation.inference.costs.tables import write_table

    write_table(table, out, manifest)
    typer.echo(
        f"{out}: {len(table.models)} networks, {len(table.pieces)} segments, {', '.join(table.kinds)}", err=True
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _progress(line: str) -> None:
    typer.echo(line, err=True)

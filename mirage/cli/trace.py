"""``mirage trace``: import, describe and generate job traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import UsageError, finite, value_unless_file
from mirage.cli.shared_options import AsJson
from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_FACTOR, HIGHEST_SEED
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from rich.console import Console

    from mirage.domain.jobtable import JobTable
    from mirage.trace.result import ImportResult

trace_app = typer.Typer(no_args_is_help=True, help="Import, describe and generate job traces.")

ROWS_SHOWN = 20
"""Maximum number of rejected rows that are listed; the rest are counted."""

Source = Annotated[Path, typer.Argument(metavar="SRC", help="Trace file to read; .gz is unpacked.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="Trace file in any format that import reads.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format: sacct, swf, mirage or parquet (default: detected from the content).",
    ),
]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="Parquet file to write.")]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict/--lenient", help="Stop at an invalid row (strict), or leave it out and report it (lenient)."
    ),
]
Zone = Annotated[
    str,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="Time zone of wall-clock times, such as Europe/Berlin (default: UTC for sacct, America/Chicago for "
        "mirage).",
    ),
]
Capacity = Annotated[
    int, typer.Option("--capacity", min=0, max=HIGHEST_COUNT, help="Nodes of the machine; 0: unknown.")
]
Like = Annotated[str, typer.Option("--like", metavar="NAME", help="Workload model: name of a preset, or a file.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=HIGHEST_SEED, help="Random seed; the same seed gives the same trace.")
]
Jobs = Annotated[
    int, typer.Option("--jobs", min=0, max=HIGHEST_COUNT, help="Number of jobs; 0: as the model gives.")
]
Days = Annotated[
    float,
    typer.Option(
        "--days",
        min=0,
        max=HIGHEST_FACTOR,
        callback=finite,
        help="Period of submissions in days; 0: as the model.",
    ),
]


@trace_app.command("import")
def import_command(
    src: Source,
    output: Output,
    *,
    format_name: Format = "",
    strict: Strict = True,
    tz: Zone = "",
    as_json: AsJson = False,
) -> None:
    """Convert a trace to Mirage's parquet format and report every rejected row."""
    from mirage.cli.arguments import parse_choice
    from mirage.cli.run_output import check_writable
    from mirage.domain.errors import ConfigError, TraceError
    from mirage.trace.parquet import write_table
    from mirage.trace.readers import TraceFormat, read_trace
    from mirage.trace.result import Strictness

    check_writable("--output", str(output))
    if output.exists() and src.exists() and output.samefile(src):
        raise ConfigError("--output", f"{output} is the input file; name another file")
    strictness = Strictness.STRICT if strict else Strictness.LENIENT
    kind = parse_choice(TraceFormat, format_name.lower(), "--format") if format_name else None
    result = read_trace(src, kind, strictness, _zone(tz))
    if not len(result.table):
        raise TraceError(str(src), 0, "", f"contains no jobs ({result.counts.rows} rows); nothing is written")
    write_table(result.table, output)
    if as_json:
        typer.echo(json.dumps(_import_document(result, output)))
    else:
        _say_import(result, output)


def _import_document(result: ImportResult, output: Path) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "output": str(output),
        "counts": asdict(result.counts),
        "rejected": [asdict(row) for row in result.rejected],
        "header": dict(result.header.entries),
        "notes": list(result.table.notes),
    }


def _say_import(result: ImportResult, output: Path) -> None:
    from rich.console import Console

    counts = result.counts
    parts = [f"{counts.rows:,} rows", f"{counts.jobs:,} jobs", f"{counts.rejected:,} rejected"]
    parts += [
        f"{number:,} {what}" for number, what in ((counts.steps, "steps"), (counts.partial, "partial")) if number
    ]
    console = Console()
    _plain(console, f"{output}: {', '.join(parts)}")
    for row in result.rejected[:ROWS_SHOWN]:
        _plain(console, f"rejected: line {row.line}: {row.field + ': ' if row.field else ''}{row.problem}")
    if len(result.rejected) > ROWS_SHOWN:
        _plain(console, f"rejected: and {len(result.rejected) - ROWS_SHOWN:,} more (--json lists all)")
    _notes(console, result.table)


@trace_app.command("stats")
def stats_command(file: File, *, as_json: AsJson = False, capacity: Capacity = 0, tz: Zone = "") -> None:
    """Print statistics of a trace: jobs, users, load, waits by class, sizes, time limits, manual chains."""
    from mirage.trace.readers import read_trace
    from mirage.trace.result import Strictness
    from mirage.trace.stats import trace_stats

    result = read_trace(file, None, Strictness.LENIENT, _zone(tz))
    stats = trace_stats(result.table, capacity or None)
    if as_json:
        typer.echo(json.dumps(stats.document() | {"rejected_rows": len(result.rejected)}))
        return
    from rich.console import Console

    from mirage.cli.tracetables import stats_tables

    console = Console()
    console.print(stats_tables(stats))
    if result.rejected:
        _plain(console, f"note: {len(result.rejected):,} invalid rows left out; trace import --lenient lists them")
    _notes(console, result.table)


@trace_app.command("generate")
def generate_command(
    output: Output,
    *,
    like: Like = "ls6",
    seed: Seed = 0,
    jobs: Jobs = 0,
    days: Days = 0.0,
    as_json: AsJson = False,
) -> None:
    """Generate a trace from a workload model that was fitted to a real trace."""
    from mirage.cli.run_output import check_writable
    from mirage.trace.generator import generate
    from mirage.trace.parquet import write_table

    check_writable("--output", str(output))
    with value_unless_file("--like", like):
        table = generate(like, seed, jobs=jobs or None, days=days or None)
    write_table(table, output)
    if as_json:
        typer.echo(json.dumps({"output": str(output), "jobs": len(table), "like": like, "seed": seed}))
        return
    from rich.console import Console

    console = Console()
    _plain(console, f"{output}: {len(table):,} jobs like {like}, seed {seed}")
    _notes(console, table)


def _zone(name: str) -> str | None:
    """Raises ``UsageError``."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name).key if name else None
    except (OSError, ValueError, LookupError):
        raise UsageError("--tz", f"unknown time zone {name!r}; expected a name such as Europe/Berlin") from None


def _notes(console: Console, table: JobTable) -> None:
    for note in table.notes:
        _plain(console, f"note: {note}")


def _plain(console: Console, text: str) -> None:
    """Print without markup and control characters, which names in a trace may contain."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

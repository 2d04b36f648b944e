"""``mirage bench``: measurements that a user can repeat."""

from __future__ import annotations

import json
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(metavar="NAME", help="simulator")]
Traces = Annotated[
    str, typer.Option(help="Folder with the published traces; without them, generated ones are measured.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def bench_command(name: Name, *, traces: Traces = "../shared/traces", as_json: AsJson = False) -> None:
    """Measure speed, as ratios within one run where there is something to compare with."""
    from pathlib import Path

    from mirage.bench.simulator import measure_simulator
    from mirage.domain.errors import ConfigError

    if name != "simulator":
        raise ConfigError("bench", f"{name!r} is not a benchmark; there is: simulator")
    sections = measure_simulator(Path(traces), lambda step: typer.echo(f"... {step}", err=True))
    if as_json:
        typer.echo(json.dumps([{"title": s.title, "rows": [list(r) for r in s.rows]} for s in sections], indent=1))
        return
    for section in sections:
        typer.echo(f"\n{section.title}")
        width = max(len(label) for label, _ in section.rows)
        for label, value in section.rows:
            typer.echo(f"  {label:<{width}}  {value}")

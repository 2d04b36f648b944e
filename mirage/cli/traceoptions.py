"""Options that several commands share which play a trace on a simulated cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from mirage.domain.bounds import MOST_WORKERS

Trace = Annotated[
    str, typer.Argument(metavar="TRACE", help="A trace file, or generated:PRESET:SEED such as generated:ls6:1.")
]
Cluster = Annotated[str, typer.Option(help="Cluster file (TOML), a slurm.conf, or a preset's name.")]
Limit = Annotated[str, typer.Option(help="Time limit of each link; links run to it.")]
NodeCounts = Annotated[str, typer.Option(help="Nodes of each link, comma-separated.")]
PartitionName = Annotated[str, typer.Option("--partition", help="Partition of the service; the default one.")]
Schema = Annotated[str, typer.Option(help="Features: v2 or paper-v1.")]
Workers = Annotated[int, typer.Option(min=0, max=MOST_WORKERS, help="Processes; 0: one for each CPU.")]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict/--lenient", help="Whether a row that cannot be read is an error or left out and named."
    ),
]

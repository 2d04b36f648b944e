"""Options shared by commands that run a trace on a simulated cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from mirage.domain.bounds import MOST_WORKERS

Trace = Annotated[
    str, typer.Argument(metavar="TRACE", help="Trace file, or generated:PRESET:SEED such as generated:ls6:1.")
]
Cluster = Annotated[
    str, typer.Option(metavar="NAME", help="Cluster file (TOML), slurm.conf, or name of a preset.")
]
Limit = Annotated[str, typer.Option(metavar="TIME", help="Time limit of each link; each link runs until it.")]
NodeCounts = Annotated[str, typer.Option(metavar="LIST", help="Nodes of each link, comma-separated.")]
PartitionName = Annotated[
    str, typer.Option("--partition", metavar="PART", help="Partition of the links; empty: the default partition.")
]
Schema = Annotated[str, typer.Option(metavar="NAME", help="Feature schema: v2 or paper-v1.")]
Workers = Annotated[int, typer.Option(min=0, max=MOST_WORKERS, help="Number of processes; 0: one per CPU.")]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict/--lenient", help="Stop at an invalid row (strict), or leave it out and report it (lenient)."
    ),
]

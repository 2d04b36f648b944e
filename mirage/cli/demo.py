"""``mirage demo``: the whole path on a bundled workload, without Slurm."""

from __future__ import annotations

from typing import Annotated

import typer

Out = Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where the report goes.")]
Seed = Annotated[int, typer.Option(help="Seed of the generated workload.")]

DAY = 86_400
POLICIES = "reactive,fixed:6h,average,quantile,slurm,oracle"


def demo_command(out: Out = "demo-out", seed: Seed = 1) -> None:
    """Generate ten busy days of a small GPU cluster, replay a two-link service on them, write the report."""
    from pathlib import Path

    from mirage.cli.replay import replay_command
    from mirage.trace.generator import generate

    Path(out).mkdir(parents=True, exist_ok=True)
    first = int(generate("demo", seed).submit[0])
    report = Path(out, "report.html")
    typer.echo(f"Ten generated days of a cluster of 16 GPU nodes (seed {seed}); every policy on 19 episodes ...")
    replay_command(
        f"generated:demo:{seed}",
        cluster="demo",
        predictor=POLICIES,
        limit="24h",
        start=str(first + 3 * DAY),
        end=str(first + 6 * DAY),
        html_out=str(report),
        json_out=str(Path(out, "replay.json")),
        seed=seed,
    )
    typer.echo(f"The report: {report.resolve().as_uri()}")

"""``mirage demo``: a daemon on a simulated cluster, with chains and the page; or the report of a replay."""

from __future__ import annotations

from typing import Annotated

import typer

from mirage.cli.arguments import finite
from mirage.domain.bounds import HIGHEST_SEED

Port = Annotated[
    int,
    typer.Option(min=0, max=65_535, help="Where the page is, on this machine only; 0: 8642, or any that is free."),
]
Rate = Annotated[float, typer.Option(min=1.0, max=3_600.0, callback=finite, help="Simulated seconds a second.")]
Seed = Annotated[
    int | None, typer.Option(min=0, max=HIGHEST_SEED, help="Of the generated workload [10; with --report 1].")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what happens, line by line.")]
Prepare = Annotated[
    bool, typer.Option("--prepare", help="Compile what demo, tasks and requests need, done once, and end.")
]
Report = Annotated[bool, typer.Option("--report", help="Replay ten generated days instead, and write a report.")]
Out = Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Where the report goes.")]

DAY = 86_400
POLICIES = "reactive,fixed:6h,average,quantile,slurm,oracle"
RATE = 720.0
"""An hour in five seconds: links of a day last two minutes."""
SEED = 10
"""A load whose queue is empty as the demo begins, and hours long later."""


def demo_command(
    *,
    port: Port = 0,
    rate: Rate = RATE,
    seed: Seed = None,
    verbose: Verbose = False,
    prepare: Prepare = False,
    report: Report = False,
    out: Out = "demo-out",
) -> None:
    """Watch Mirage keep chains alive on a simulated cluster, in the browser.

    Daemon, cluster, background load, six chains and the page run in this process; nothing is left of them.
    """
    if report:
        _write_report(out, 1 if seed is None else seed)
        return
    from mirage.cli.demoworld import DemoWorld, prepare_simulator

    if prepare:
        from mirage.bootstrap.compiling_pool import compile_pool
        from mirage.bootstrap.compiling_requests import compile_requests

        prepare_simulator()
        compile_pool()
        compile_requests()
        return
    from mirage.daemon.process import leave

    seed = SEED if seed is None else seed
    leave(DemoWorld(port=port, rate=rate, seed=seed, verbose=verbose).run())


def _write_report(out: str, seed: int) -> None:
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
        output=str(Path(out, "replay.json")),
        seed=seed,
    )
    typer.echo(f"The report: {report.resolve().as_uri()}")

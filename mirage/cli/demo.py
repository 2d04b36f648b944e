"""``mirage demo``: a daemon on a simulated cluster, with chains and the web UI; or the report of a replay."""

from __future__ import annotations

from typing import Annotated

import typer

from mirage.cli.arguments import finite
from mirage.domain.bounds import HIGHEST_SEED

Port = Annotated[
    int,
    typer.Option(min=0, max=65_535, help="Port of the web UI on localhost; 0: 8642, or any free port."),
]
Rate = Annotated[
    float, typer.Option(min=1.0, max=3_600.0, callback=finite, help="Speed: simulated seconds per second.")
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=HIGHEST_SEED, help="Random seed of the workload (default 10; with --report 1)."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what the daemon does.")]
Prepare = Annotated[
    bool, typer.Option("--prepare", help="Compile the code of demo, tasks and requests once, and exit.")
]
Report = Annotated[
    bool, typer.Option("--report", help="Replay ten generated days and write a report instead of the demo.")
]
Out = Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Directory of the report.")]

DAY = 86_400
POLICIES = "reactive,fixed:6h,average,quantile,slurm,oracle"
RATE = 720.0
"""One hour takes five seconds, a link of one day two minutes."""
SEED = 10
"""A workload whose queue is empty at the start of the demo and hours long later."""


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
    """Run Mirage on a simulated cluster and watch it in the browser.

    Daemon, cluster, background load, six chains and the web UI run in this process. Nothing remains after its end.
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
    """Generate ten busy days of a small GPU cluster, replay chains of two links on them, write the report."""
    from pathlib import Path

    from mirage.cli.replay import replay_command
    from mirage.trace.generator import generate

    Path(out).mkdir(parents=True, exist_ok=True)
    first = int(generate("demo", seed).submit[0])
    report = Path(out, "report.html")
    typer.echo(f"Replaying ten generated days of 16 GPU nodes (seed {seed}): 19 episodes for each predictor ...")
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
    typer.echo(f"Report: {report.resolve().as_uri()}")

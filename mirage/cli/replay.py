"""``mirage replay``: compare submission policies on a trace; ``mirage simulate``: run a trace."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import UsageError, duration_of, finite, limit_of, value_of
from mirage.cli.run_output import DocumentOut, OutputReport, check_writable
from mirage.cli.shared_options import AsJson, Cluster, Limit, PartitionName, Strict, Trace, Workers
from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_SEED, MOST_LINKS, MOST_NODES
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from mirage.domain.jobtable import JobTable
    from mirage.replay.metrics import ReplayMetrics
    from mirage.replay.plan import ReplayPlan
    from mirage.replay.results import ReplayResult
    from mirage.simulator.cluster import ClusterConfig, Scheduling
    from mirage.simulator.run import Schedule

Mode = Annotated[
    str,
    typer.Option(
        "--scheduling",
        metavar="NAME",
        help="Scheduler: slurm, or easy or fifo on one pool (default: cluster file).",
    ),
]
Processors = Annotated[
    int,
    typer.Option(min=0, max=HIGHEST_COUNT, help="CPUs of the pool for easy and fifo; 0: the cluster's CPUs."),
]
ScheduleOut = Annotated[
    str,
    typer.Option("--schedule", metavar="OUT.parquet", help="Write all jobs with simulated start and end."),
]


def simulate_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    trace: Trace,
    *,
    cluster: Cluster = "",
    mode: Mode = "",
    processors: Processors = 0,
    as_json: AsJson = False,
    output: DocumentOut = "",
    schedule_out: ScheduleOut = "",
    strict: Strict = False,
) -> None:
    """Simulate the scheduling of all jobs of a trace and print statistics of their waits."""
    from mirage.cli.arguments import load_sized_trace
    from mirage.simulator.run import simulate

    report = OutputReport(as_json, output)
    report.check()
    check_writable("--schedule", schedule_out)
    table, machine = load_sized_trace(trace, strict=strict)
    config, scheduling = _cluster(cluster, mode, processors or (machine if not cluster else 0))
    schedule = simulate(table, config, scheduling)
    if schedule_out:
        from mirage.trace.parquet import write_table

        write_table(schedule.table, Path(schedule_out))
    document = _document(schedule, config, scheduling)
    report.write(lambda: document)
    if not report.takes_stdout:
        _show_simulation(document)


def _cluster(name: str, mode: str, processors: int) -> tuple[ClusterConfig, Scheduling]:
    """Return the named cluster, or one pool of ``processors``, and its scheduler."""
    from mirage.cli.arguments import load_cluster, parse_choice
    from mirage.domain.errors import ConfigError
    from mirage.simulator.cluster import ClusterConfig, NodeGroup, Scheduling

    if processors > 0:
        pool = (NodeGroup(("pool",), cpus=processors),)
        config = ClusterConfig(f"{processors} CPUs", pool, (), scheduling=Scheduling.EASY)
    elif name:
        config = load_cluster(name)
    else:
        raise ConfigError("--cluster", "missing; name a cluster file or preset, or give --processors for one pool")
    scheduling = parse_choice(Scheduling, mode, "--scheduling") if mode else config.scheduling
    if scheduling == Scheduling.SLURM and not config.partitions:
        raise ConfigError("--scheduling", "slurm requires a --cluster with partitions, not a pool of CPUs")
    return config, scheduling


def _document(schedule: Schedule, config: ClusterConfig, scheduling: Scheduling) -> dict[str, object]:
    return {
        "trace": schedule.table.source,
        "cluster": config.name,
        "scheduling": str(scheduling),
        **asdict(schedule.figures),
        "rejected_by_reason": schedule.rejected,
        "notes": list(schedule.notes),
    }


def _show_simulation(document: dict[str, object]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in document.items():
        if key != "notes":
            text = f"{value:,.4f}" if isinstance(value, float) else printable(str(value))
            table.add_row(key.replace("_", " "), Text(text))
    console = Console()
    console.print(table)
    notes = document["notes"]
    for note in notes if isinstance(notes, list) else ():
        console.print(printable(f"note: {note}"), markup=False, highlight=False)


POLICIES = "reactive,fixed:6h,average,quantile,slurm,oracle"

_REJECTED = {
    "PartitionInvalid": "--partition",
    "PartitionNodeLimit": "--nodes",
    "PartitionTimeLimit": "--limit",
    "BadConstraints": "--cpus",
}
"""Rejection reasons of the simulated cluster, with the option that causes each."""

Predictors = Annotated[
    str,
    typer.Option(
        "--predictor", metavar="LIST", help="Predictors to compare, comma-separated: name or name:parameter."
    ),
]
Cpus = Annotated[
    int,
    typer.Option(min=0, max=HIGHEST_COUNT, help="CPUs of each link per node, on shared nodes; 0: whole nodes."),
]
User = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Owner of the links: a user of the trace, with its usage and limits; empty: a new user.",
    ),
]
OneWriter = Annotated[
    bool, typer.Option("--one-writer", help="Never run two links at the same time (handover none).")
]
Nodes = Annotated[int, typer.Option(min=1, max=MOST_NODES, help="Nodes of each link.")]
Start = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="Start of the first episode: 2023-02-01, 2023-02-01T12:00 (UTC), or epoch seconds."
    ),
]
End = Annotated[str, typer.Option(metavar="TIME", help="Latest start of an episode.")]
Every = Annotated[str, typer.Option(metavar="TIME", help="Time between two episodes.")]
Links = Annotated[int, typer.Option(min=2, max=MOST_LINKS, help="Number of links of each chain.")]
Tick = Annotated[str, typer.Option(metavar="TIME", help="Time between two decisions.")]
OverlapPrice = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=HIGHEST_COUNT,
        callback=finite,
        help="Price of overlap, relative to interruption (1), for predictors that minimise cost.",
    ),
]
HtmlOut = Annotated[str, typer.Option("--html", metavar="OUT", help="Write a report as one HTML file.")]
Seed = Annotated[int, typer.Option(min=0, max=HIGHEST_SEED, help="Random seed of the confidence intervals.")]
ProgressOut = Annotated[
    str, typer.Option("--progress", metavar="OUT", help="Write the progress to this file, as JSON.")
]


def replay_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    trace: Trace,
    *,
    cluster: Cluster,
    start: Start,
    end: End,
    predictor: Predictors = POLICIES,
    nodes: Nodes = 1,
    cpus: Cpus = 0,
    limit: Limit = "48h",
    every: Every = "4h",
    links: Links = 2,
    tick: Tick = "10m",
    partition: PartitionName = "",
    user: User = "",
    one_writer: OneWriter = False,
    overlap_price: OverlapPrice = 1.0,
    as_json: AsJson = False,
    output: DocumentOut = "",
    html_out: HtmlOut = "",
    seed: Seed = 0,
    workers: Workers = 0,
    progress: ProgressOut = "",
    strict: Strict = False,
) -> None:
    """Replay a trace and compare predictors: interruption and overlap of a chain with each of them.

    The command simulates the trace once. At fixed times an episode begins: a chain submits its first link. Each
    predictor then decides, on a separate copy of the cluster, when to submit the next link.
    """
    from mirage.cli.arguments import load_trace, parse_instant, pieces
    from mirage.domain.objective import Weights
    from mirage.replay.plan import SERVICE_USER, ReplayPlan

    plan = ReplayPlan(
        policies=pieces(predictor),
        nodes=nodes,
        cpus=cpus,
        limit=limit_of("--limit", limit),
        start=parse_instant(start, "--start"),
        end=parse_instant(end, "--end"),
        every=duration_of("--every", every),
        tick=duration_of("--tick", tick),
        links=links,
        partition=partition,
        user=user or SERVICE_USER,
        one_writer=one_writer,
        weights=Weights(overlap=overlap_price),
        seed=seed,
    )
    report = OutputReport(as_json, output, html=html_out)
    report.check()
    check_writable("--progress", progress)
    told = _kept_in(progress) if progress else lambda done, total: None
    _check_policies(plan)
    _tell(_replay(load_trace(trace, strict=strict), cluster, plan, workers or os.cpu_count() or 1, told), report)


def _check_policies(plan: ReplayPlan) -> None:
    """Raises ``UsageError``."""
    from mirage.replay.episodes import policy_predictor

    with value_of("--predictor"):
        for policy in plan.policies:
            policy_predictor(policy, plan, None)


def _replay(
    table: JobTable, cluster: str, plan: ReplayPlan, workers: int, told: Callable[[int, int], None]
) -> ReplayResult:
    from mirage.cli.arguments import load_cluster
    from mirage.cli.run_output import steps
    from mirage.domain.errors import SubmissionRejected
    from mirage.replay.closedloop import replay

    config = load_cluster(cluster)
    with steps("episodes") as advance:

        def played(done: int, total: int) -> None:
            advance(done, total)
            told(done, total)

        try:
            return replay(table, config, plan, workers=workers, on_episode=played)
        except SubmissionRejected as error:
            if error.reason not in _REJECTED:
                raise
            raise UsageError(_REJECTED[error.reason], str(error)) from None


def _kept_in(name: str) -> Callable[[int, int], None]:
    """Return a function that replaces the file after each episode, atomically for its readers."""
    from mirage.atomic_file import write_atomically

    return lambda done, total: write_atomically(Path(name), json.dumps({"done": done, "total": total}).encode())


def _tell(result: ReplayResult, report: OutputReport) -> None:
    from rich.console import Console

    from mirage.replay.metrics import measure

    metrics = measure(result)
    _write(report, result, metrics)
    if not report.takes_stdout:
        _show(Console(), result, metrics)


def _write(report: OutputReport, result: ReplayResult, metrics: ReplayMetrics) -> None:
    from mirage.replay.metrics import replay_document

    def page(path: Path) -> None:
        from mirage.replay.html import write_html

        write_html(path, result, metrics)

    report.write(lambda: replay_document(result, metrics), html=page)


def _show(console: Console, result: ReplayResult, metrics: ReplayMetrics) -> None:
    from mirage.replay.wording import replay_table

    console.print(replay_table(metrics, console.width))
    for note in result.notes:
        console.print(printable(f"note: {note}"), markup=False, highlight=False)

"""``mirage simulate``: run a whole trace on a simulated cluster."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.asking import AsJson
from mirage.cli.outputs import DocumentOut, Report, check_writable
from mirage.cli.traceoptions import Cluster, Strict, Trace
from mirage.domain.bounds import HIGHEST_COUNT
from mirage.domain.texts import printable

if TYPE_CHECKING:
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

    report = Report(as_json, output)
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
        _show(document)


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


def _show(document: dict[str, object]) -> None:
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

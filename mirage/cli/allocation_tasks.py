"""``mirage allocation replay``, ``pack`` and ``train``: policies for tasks, simulated.

``pack`` compares how full placement policies fill a pool, as in the FGD paper.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import finite, value_of
from mirage.cli.run_output import DocumentOut, OutputReport, Workers, parse_seeds, run_progress
from mirage.cli.shared_options import AsJson
from mirage.domain.bounds import HIGHEST_FACTOR, YEAR

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from mirage.allocation.ddl.packing import Packed
    from mirage.allocation.ddl.replay import Compared, PolicyPair, TaskReplay
    from mirage.training.das.course import DasCourse, DasTraining

Mixes = Annotated[
    list[str], typer.Argument(metavar="MIX...", help="Task mixes (TOML) from which to draw task sets.")
]
TrainingPool = Annotated[
    str, typer.Option("--pool", metavar="POOL", help=r"Pool: NODESxDEVICES\[:KIND]\[@DOLLARS],...")
]
TrainingSpeeds = Annotated[
    str, typer.Option(metavar="TABLE", help="Throughput table: deepshare:DIR, gavel:FILE or measured:FILE.")
]
Out = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="New directory of the trained agents and their manifest."),
]
Seed = Annotated[
    int, typer.Option(min=0, max=90, help="Random seed of the training; task sets use seeds from 500000 on.")
]
Rounds = Annotated[int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Number of training rounds.")]
Sets = Annotated[
    int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Task sets per round; each is simulated eight times.")
]
Tasks = Annotated[
    int, typer.Option(min=2, max=HIGHEST_FACTOR, help="Maximum number of tasks per set used for training.")
]
Without = Annotated[
    str,
    typer.Option(
        metavar="PARTS", help="Parts to leave out, for ablations: communication, walks; comma-separated."
    ),
]
State = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Checkpoint file: written after each round, read to continue a training."),
]


def train_agents_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    mixes: Mixes,
    *,
    pool: TrainingPool,
    out: Out,
    speeds: TrainingSpeeds = "",
    seed: Seed = 0,
    rounds: Rounds = 60,
    sets: Sets = 4,
    tasks: Tasks = 60,
    without: Without = "",
    state: State = None,
) -> None:
    """Train the two agents of DAS together. Training requires torch, the trained agents do not.

    Use the agents with --ordering das:DIR --placer das:DIR.
    """
    from mirage.artifact import refuse_existing
    from mirage.domain.errors import MissingExtra

    refuse_existing(out)
    try:
        from mirage.training.das.course import DasCourse, shape_of
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "onnx"):
            raise
        raise MissingExtra("training agents", "agents") from None
    left_out = [part for part in without.split(",") if part]
    course = DasCourse(
        tuple(mixes), pool, speeds, seed=seed, rounds=rounds, sets=sets, tasks=tasks, shape=shape_of(left_out)
    )
    training = _train(course, state)
    training.write(out)
    typer.echo(f"{out}: mean JCT {training.best:.3f} times that of the untrained agents, on the validation set")


def _train(course: DasCourse, state: Path | None) -> DasTraining:
    import torch

    from mirage.training.das.course import DasTraining

    # Small networks: more threads would spend their time on synchronisation.
    torch.set_num_threads(1)
    training = DasTraining(course)
    if state is not None and state.exists():
        training.resume(state)
    for report in training.rounds():
        told = "" if report.validation is None else f", validation {report.validation:.3f}"
        typer.echo(f"round {report.number}: mean JCT {report.measured['jct']:.0f} s{told}", err=True)
        if state is not None:
            training.save(state)
    return training


Trace = Annotated[str, typer.Argument(metavar="TRACE", help="Task trace, or a mix from which to draw tasks.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format of TRACE: muri, openb, jobs (parquet of Philly and Helios), deepshare or mix.",
    ),
]
PoolText = Annotated[
    str,
    typer.Option(
        "--pool",
        metavar="POOL",
        help=r"Pool: NODESxDEVICES\[:KIND]\[@DOLLARS],... (DOLLARS per device and hour), or openb's node file.",
    ),
]
OrderingName = Annotated[str, typer.Option("--ordering", metavar="NAME", help="Ordering policy.")]
PlacerName = Annotated[str, typer.Option("--placer", metavar="NAME", help="Placement policy.")]
Compare = Annotated[
    str,
    typer.Option(
        metavar="PAIRS", help="Scheduling policies to compare, comma-separated: fifo+first-fit,sjf+best-fit."
    ),
]
Speeds = Annotated[
    str,
    typer.Option(
        metavar="TABLE",
        help="Throughput table: deepshare:DIR, gavel:FILE or measured:FILE. Default: equal speed on all devices.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Strict order: do not backfill past the first task that does not fit.")
]
Preempt = Annotated[bool, typer.Option("--preempt", help="Allow preemption of tasks with a checkpoint.")]
Move = Annotated[
    bool, typer.Option("--move", help="With --preempt: also move tasks to other devices to make room.")
]
Quantum = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=YEAR,
        callback=finite,
        metavar="SECONDS",
        help="Time between scheduling decisions, in seconds; 0: only when a task arrives or ends.",
    ),
]
Seeds = Annotated[str, typer.Option(metavar="SEEDS", help="Random seeds of the drawn task sets: 0-9, or 1,5,7-9.")]
MarkdownOut = Annotated[
    str, typer.Option("--markdown", metavar="OUT", help="Write the table in Markdown; - is stdout.")
]
HtmlOut = Annotated[
    str,
    typer.Option(
        "--html", metavar="OUT", help="Write a report with the timelines of all devices as one HTML file."
    ),
]


def task_replay_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    trace: Trace,
    *,
    format_name: Format,
    pool: PoolText,
    ordering: OrderingName = "sjf",
    placer: PlacerName = "best-fit",
    compare: Compare = "",
    speeds: Speeds = "",
    strict: Strict = False,
    preempt: Preempt = False,
    move: Move = False,
    quantum: Quantum = 0.0,
    seeds: Seeds = "0",
    workers: Workers = 0,
    as_json: AsJson = False,
    output: DocumentOut = "",
    markdown_out: MarkdownOut = "",
    html_out: HtmlOut = "",
) -> None:
    """Simulate tasks in a pool: completion times, makespan, cost and fairness of one or several policies.

    All policies get the same tasks. Results are means over the seeds with standard deviations.
    """
    from rich.console import Console

    from mirage.allocation.ddl.dispatch import DispatchRules
    from mirage.allocation.ddl.formats.readers import TaskFormat, TaskSource
    from mirage.allocation.ddl.replay import TaskReplay
    from mirage.cli.arguments import parse_choice

    source = TaskSource(trace, parse_choice(TaskFormat, format_name, "--format"), pool, speeds)
    report = OutputReport(as_json, output, markdown_out, html_out)
    report.check()
    rules = DispatchRules(strict=strict, preempt=preempt, move=move, quantum=quantum or float("inf"))
    pairs = _pairs(compare) if compare else (_pair(ordering, placer),)
    compared = _play(TaskReplay(source, pairs, rules, parse_seeds(seeds)), workers or os.cpu_count() or 1)
    _write(report, compared)
    if not report.takes_stdout:
        _show(Console(), compared)


def _pair(ordering: str, placer: str) -> PolicyPair:
    from mirage.allocation.ddl import registry
    from mirage.allocation.ddl.replay import PolicyPair

    with value_of("--ordering"):
        registry.ordering(ordering)
    with value_of("--placer"):
        registry.placer(placer)
    return PolicyPair(ordering, placer)


def _pairs(text: str) -> tuple[PolicyPair, ...]:
    from mirage.allocation.ddl.replay import parse_pair

    with value_of("--compare"):
        return tuple(parse_pair(part) for part in text.split(","))


def _play(replay: TaskReplay, workers: int) -> Compared:
    from mirage.allocation.ddl.replay import play_all

    with run_progress() as advance:
        return play_all(replay, workers, advance)


def _write(report: OutputReport, compared: Compared) -> None:
    from mirage.allocation.ddl.comparison import document, markdown

    def page(path: Path) -> None:
        from mirage.replay.taskpage import write_task_page

        write_task_page(path, compared)

    report.write(lambda: document(compared), lambda: markdown(compared), page)


def _show(console: Console, compared: Compared) -> None:
    from mirage.allocation.ddl.comparison import describe

    table = _table(compared)
    fits = console.measure(table, options=console.options.update(width=10_000)).minimum <= console.width
    console.print(describe(compared), markup=False, highlight=False)
    console.print(table if fits else _turned(compared))


def _table(compared: Compared) -> Table:
    """Return a table with one row per policy."""
    from rich.table import Table
    from rich.text import Text

    from mirage.allocation.ddl.comparison import COLUMNS, lines

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("pair", no_wrap=True)
    for heading in (*(column.heading.replace(", ", "\n") for column in COLUMNS), "JCT vs\nfirst"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines(compared):
        cells = (Text(_stacked(cell.mean, cell.spread), "bold" * cell.best) for cell in line.cells)
        table.add_row(Text(line.pair.name), *cells, _stacked(line.change, line.change_spread))
    return table


def _turned(compared: Compared) -> Table:
    """Return a table with one row per figure, for narrow terminals."""
    from rich.table import Table
    from rich.text import Text

    from mirage.allocation.ddl.comparison import COLUMNS, lines

    rows = lines(compared)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for line in rows:
        table.add_column(f"{line.pair.ordering}\n{line.pair.placer}", justify="right", overflow="fold")
    for i, column in enumerate(COLUMNS):
        cells = [line.cells[i] for line in rows]
        table.add_row(
            column.heading, *(Text(_stacked(cell.mean, cell.spread), "bold" * cell.best) for cell in cells)
        )
    table.add_row("JCT against the first", *(_stacked(line.change, line.change_spread) for line in rows))
    return table


def _stacked(value: str, spread: str) -> str:
    return f"{value}\n\N{PLUS-MINUS SIGN} {spread}" if spread else value


Nodes = Annotated[Path, typer.Option(metavar="CSV", help="Nodes, in the format of openb.")]
Pods = Annotated[Path, typer.Option(metavar="CSV", help="Tasks, in the format of openb.")]
Placers = Annotated[
    str, typer.Option("--placer", metavar="NAMES", help="Placement policies to compare, comma-separated.")
]
FillTo = Annotated[
    int, typer.Option("--fill", min=1, max=1000, help="Add tasks until they request N percent of the pool.")
]


def pack_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    *,
    nodes: Nodes,
    pods: Pods,
    placers: Placers = "best-fit,fgd,foresight",
    seeds: Seeds = "42-51",
    fill: FillTo = 130,
    workers: Workers = 0,
    as_json: AsJson = False,
    output: DocumentOut = "",
) -> None:
    """Fill a pool with tasks that never end, and print the allocated share for each requested share.

    Tasks and nodes are in random order, the same for every placement policy. Results are means over the seeds.
    """
    from rich.console import Console

    from mirage.allocation.ddl.formats.traces import read_openb
    from mirage.allocation.ddl.packing import document, pack_all
    from mirage.allocation.ddl.registry import placer

    report = OutputReport(as_json, output)
    report.check()
    names = [name.strip() for name in placers.split(",")]
    for name in names:
        with value_of("--placer"):
            placer(name)
    chosen = parse_seeds(seeds)
    trace = read_openb(pods, nodes)
    packed = pack_all(trace.tasks, trace.pool, names, chosen, fill, workers or os.cpu_count() or 1)
    report.write(lambda: document(packed, fill))
    if not report.takes_stdout:
        Console().print(_packing_table(packed, fill))


def _packing_table(packed: tuple[Packed, ...], fill: int) -> Table:
    """Return a table with one row per placement policy and one column per requested share."""
    from rich.table import Table

    from mirage.allocation.ddl.packing import marks_to, summarise

    several = len({one.seed for one in packed}) > 1
    table = Table(
        box=None,
        pad_edge=False,
        header_style="dim",
        title="Allocated devices (%) by requested share",
        title_justify="left",
    )
    table.add_column("placer", no_wrap=True)
    for mark in marks_to(fill):
        table.add_column(f"{mark} %", justify="right", no_wrap=True)
    for name, fills in summarise(packed, fill).items():
        cells = [
            f"{one.mean:.2f}\n\N{PLUS-MINUS SIGN} {one.spread:.2f}" if several else f"{one.mean:.2f}"
            for one in fills
        ]
        table.add_row(name, *cells)
    return table

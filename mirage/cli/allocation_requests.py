"""``mirage allocation requests``: inference requests on devices of several kinds, simulated."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import finite, value_of, value_unless_file
from mirage.cli.run_output import DocumentOut, OutputReport, Workers, parse_seeds, run_progress
from mirage.cli.shared_options import AsJson, JsonFlagCommand, OutputCommand
from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_FACTOR

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from mirage.allocation.comparing import FigureCell
    from mirage.allocation.inference.comparison import PolicyLine
    from mirage.allocation.inference.replay import ComparedPolicies
    from mirage.training.relmas.course import RelmasCourse, RelmasTraining

Scenarios = Annotated[
    list[str],
    typer.Argument(
        metavar="SCENARIO...", help="Scenarios: built-in names, such as light or mixed-heavy, or TOML files."
    ),
]
PolicyName = Annotated[
    str,
    typer.Option("--policy", metavar="NAME", help="Scheduling policy: which request runs next on which device."),
]
Compare = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Policies to compare, comma-separated: fcfs,edf,llf:late-last; all: all untrained policies.",
    ),
]
Seeds = Annotated[
    str, typer.Option(metavar="SEEDS", help="Random seeds of the generated requests: 0-9, or 1,5,7-9.")
]
Bounded = Annotated[
    bool,
    typer.Option("--bound", help="Also compute the upper bound of a policy that knows all requests in advance."),
]
MarkdownOut = Annotated[
    str, typer.Option("--markdown", metavar="OUT", help="Write the tables in Markdown; - is stdout.")
]
HtmlOut = Annotated[
    str,
    typer.Option(
        "--html", metavar="OUT", help="Write a report with the timelines of all devices as one HTML file."
    ),
]

_FEW = 3
"""Maximum number of policies whose figures all fit side by side."""


def request_replay_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    scenarios: Scenarios,
    *,
    policy: PolicyName = "edf",
    compare: Compare = "",
    seeds: Seeds = "0",
    bound: Bounded = False,
    workers: Workers = 0,
    as_json: AsJson = False,
    output: DocumentOut = "",
    markdown_out: MarkdownOut = "",
    html_out: HtmlOut = "",
) -> None:
    """Simulate requests on devices of several kinds: met deadlines, latency, energy and fairness by policy.

    All policies get the same requests. Results are means over the seeds with standard deviations.
    """
    from rich.console import Console

    from mirage.allocation.inference.registry import named_policies, request_policy
    from mirage.allocation.inference.replay import RequestReplay, play_all

    report = OutputReport(as_json, output, markdown_out, html_out)
    report.check()
    with value_of("--compare" if compare else "--policy"):
        names = named_policies(compare or policy)
        for each in names:
            request_policy(each)
    check_scenarios(scenarios)
    replay = RequestReplay(tuple(scenarios), names, parse_seeds(seeds), logged=bool(html_out), bounded=bound)
    with run_progress() as advance:
        compared = play_all(replay, workers or os.cpu_count() or 1, advance)
    _write(report, compared)
    if not report.takes_stdout:
        _show(Console(), compared)


def check_scenarios(names: list[str]) -> None:
    """Raise ``UsageError`` for a name that is neither built in nor a file, ``ConfigError`` for a bad file."""
    from mirage.allocation.inference.workload.scenario import find_scenario

    for name in names:
        with value_unless_file("SCENARIO", name):
            find_scenario(name)


def _write(report: OutputReport, compared: ComparedPolicies) -> None:
    from mirage.allocation.inference.comparison import document, markdown

    def page(path: Path) -> None:
        from mirage.replay.requestpage import write_request_page

        write_request_page(path, compared)

    report.write(lambda: document(compared), lambda: markdown(compared), page)


def _show(console: Console, compared: ComparedPolicies) -> None:
    from mirage.allocation.inference.comparison import describe

    for scenario in compared.replay.scenarios:
        console.print(describe(compared, scenario), markup=False, highlight=False)
        console.print(_table(compared, scenario))
        console.print()


def _table(compared: ComparedPolicies, scenario: str) -> Table:
    """Return all figures, one per row, for few policies; for many, the main figures, one policy per row."""
    from rich.table import Table

    from mirage.allocation.inference.comparison import bounded_lines, tenants

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    rows = bounded_lines(compared, scenario)
    if len(compared.replay.policies) <= _FEW:
        _fill_by_figure(table, rows, tenants(compared, scenario))
    else:
        _fill_by_policy(table, rows)
    return table


def _fill_by_figure(table: Table, rows: tuple[PolicyLine, ...], tenants: tuple[str, ...]) -> None:
    """Add one row per figure, the SLA of each tenant last."""
    from mirage.allocation.inference.comparison import COLUMNS

    headings = (*(column.heading for column in COLUMNS), *(f"SLA of {name}, %" for name in tenants))
    for line in rows:
        table.add_column(line.policy, justify="right", overflow="fold")
    for heading, *cells in zip(headings, *((*line.cells, *line.tenants) for line in rows), strict=True):
        table.add_row(heading, *map(_told, cells))


def _fill_by_policy(table: Table, rows: tuple[PolicyLine, ...]) -> None:
    from mirage.allocation.inference.comparison import COLUMNS, FOREMOST

    places = [place for place, column in enumerate(COLUMNS) if column.key in FOREMOST]
    for place in places:
        table.add_column(COLUMNS[place].heading, justify="right", no_wrap=True)
    for line in rows:
        table.add_row(line.policy, *(_told(line.cells[place]) for place in places))


def _told(cell: FigureCell) -> Text:
    from rich.text import Text

    from mirage.allocation.comparing import spread

    return Text(spread(cell.mean, cell.spread), "bold" * cell.best)


class RequestAgent(StrEnum):
    """Agent to train."""

    RELMAS = "relmas"
    ODRA = "odra"


TrainingScenarios = Annotated[
    list[str],
    typer.Argument(
        metavar="SCENARIO...", help="Scenarios (TOML, or built-in names) from which to draw workloads."
    ),
]
Which = Annotated[
    RequestAgent,
    typer.Option("--agent", help="Agent: relmas (deadlines and bandwidth) or odra (latency and fairness)."),
]
Out = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="New directory of the trained agent and its manifest."),
]
Seed = Annotated[
    int, typer.Option(min=0, max=90, help="Random seed of the training; workloads use seeds from 500000 on.")
]
Rounds = Annotated[
    int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Number of training rounds, before 8 rounds of fine-tuning.")
]
Period = Annotated[
    float,
    typer.Option(
        min=0.01, max=HIGHEST_COUNT, callback=finite, help="Time between two decisions of the agent (T_s), in ms."
    ),
]
State = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Checkpoint file: written during training, read to continue a training."),
]


def train_requests_command(
    scenarios: TrainingScenarios,
    *,
    out: Out,
    agent: Which = RequestAgent.RELMAS,
    seed: Seed = 0,
    rounds: Rounds = 30,
    period_ms: Period = 50.0,
    state: State = None,
) -> None:
    """Train an agent that schedules requests. Training requires torch, the trained agent does not.

    Use the agent with --policy relmas:DIR or odra:DIR.
    """
    from mirage.artifact import refuse_existing
    from mirage.domain.errors import MissingExtra

    refuse_existing(out)
    check_scenarios(scenarios)
    try:
        from mirage.training.relmas.course import course_of
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "onnx", "cmaes"):
            raise
        raise MissingExtra("training agents", "agents") from None
    training = _train(course_of(agent.value, tuple(scenarios), seed, rounds, period_ms / 1000), state)
    training.write(out)
    typer.echo(f"{out}: {training.best:+.4f} compared with the matcher alone, on the validation set")


def _train(course: RelmasCourse, state: Path | None) -> RelmasTraining:
    import torch

    from mirage.training.relmas.course import RelmasTraining

    # Small networks: more threads would spend their time on synchronisation.
    torch.set_num_threads(1)
    training = RelmasTraining(course)
    if state is not None and state.exists():
        training.resume(state)
    else:
        typer.echo(f"matcher: {training.set_matcher()}", err=True)
    for name in training.find_constants():
        typer.echo(f"constants for {name}: found", err=True)
        if state is not None:
            training.save(state)
    if not training.imitated:
        typer.echo(f"constants imitated: mean squared error {training.imitate():.4f}", err=True)
    for report in training.rounds():
        if report.validation is not None:
            typer.echo(
                f"round {report.number}: {report.gained:+.4f} per period, validation {report.validation:+.4f}",
                err=True,
            )
            if state is not None:
                training.save(state)
    return training


requests_app = typer.Typer(
    no_args_is_help=True, help="Simulate inference requests on devices of several kinds, and train agents."
)
requests_app.command("replay", cls=JsonFlagCommand)(request_replay_command)
requests_app.command("train", cls=OutputCommand)(train_requests_command)

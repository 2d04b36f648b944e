"""``mirage evaluate``: compare methods on a trace, with training data strictly before the test data."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from mirage.cli.arguments import duration_of, limit_of, value_of
from mirage.cli.shared_options import (
    Cluster,
    Limit,
    NodeCounts,
    OutputCommand,
    PartitionName,
    Schema,
    Trace,
    Workers,
)
from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_FACTOR

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.evaluation.plan import EvaluationPlan, EvaluationSetting
    from mirage.training.evaluation.schedule import Found

METHODS = "reactive,fixed:6h,average,quantile,slurm,random-forest,xgboost,dqn,policy-gradient,lookahead,oracle"
DEFAULT = "replay"


class _WithDefault(TyperGroup):
    """``mirage evaluate TRACE`` is ``mirage evaluate replay TRACE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command if none is given."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


evaluate_app = typer.Typer(
    cls=_WithDefault,
    no_args_is_help=True,
    help="Compare methods on a trace: mirage evaluate TRACE ... is short for mirage evaluate replay TRACE ...",
)

Out = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        metavar="DIR",
        help="Directory of tables, models, episodes and reports; existing results are reused.",
    ),
]
TrainFrom = Annotated[
    str, typer.Option(metavar="TIME", help="Start of the training set: a date, or epoch seconds.")
]
ValidateFrom = Annotated[
    str, typer.Option(metavar="TIME", help="Start of the validation set, which selects models.")
]
TestFrom = Annotated[str, typer.Option(metavar="TIME", help="First episode of the test; training data ends here.")]
TestTo = Annotated[str, typer.Option(metavar="TIME", help="Latest start of an episode.")]
Methods = Annotated[
    str, typer.Option(metavar="LIST", help="Predictors, comma-separated: name or name:parameter, and oracle.")
]
ClusterNodes = Annotated[
    str, typer.Option(metavar="LIST", help="Cluster sizes in nodes, comma-separated (default: the cluster's).")
]
Also = Annotated[
    str,
    typer.Option(
        "--also-with-nodes",
        metavar="LIST",
        help="Also generate training data on the cluster reduced to N nodes, comma-separated numbers.",
    ),
]
Errors = Annotated[
    str,
    typer.Option(
        "--planner-error",
        metavar="LIST",
        help="Also test the look-ahead with errors in its cluster model, comma-separated: nodes+5%, nodes-5%, "
        "no-user-limit, priorities, month-old.",
    ),
]
Seeds = Annotated[
    int,
    typer.Option(min=1, max=HIGHEST_FACTOR, help="Number of models per trained method, each with its own seed."),
]
Every = Annotated[str, typer.Option(metavar="TIME", help="Time between two episodes.")]
TeachEvery = Annotated[
    str, typer.Option(metavar="TIME", help="Time between two handovers of the training set (default: --every).")
]
Grid = Annotated[
    str, typer.Option(metavar="TIME", help="Time between two simulated submit times of a training handover.")
]
Html = Annotated[bool, typer.Option("--html", help="Also write report.html to --output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout instead of the tables.")]


@evaluate_app.command(DEFAULT, cls=OutputCommand)
def evaluate_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    trace: Trace,
    *,
    cluster: Cluster,
    out: Out,
    test_from: TestFrom,
    test_to: TestTo,
    train_from: TrainFrom = "",
    validate_from: ValidateFrom = "",
    methods: Methods = METHODS,
    nodes: NodeCounts = "1,8",
    cluster_nodes: ClusterNodes = "",
    also_with_nodes: Also = "",
    planner_error: Errors = "",
    seeds: Seeds = 3,
    limit: Limit = "48h",
    every: Every = "4h",
    teach_every: TeachEvery = "",
    grid: Grid = "30m",
    partition: PartitionName = "",
    schema: Schema = "v2",
    workers: Workers = 0,
    html: Html = False,
    as_json: AsJson = False,
) -> None:
    """Train all methods that need it, replay the test period with each method, and compare them.

    The command stores episodes, models and tables in --output. After an interruption it continues there; more
    methods, seeds or sizes add to them. It updates report.json and report.md there after each result.
    """
    from mirage.cli.arguments import load_cluster, load_trace, numbers, parse_instant, pieces
    from mirage.cli.run_output import sentences
    from mirage.training.evaluation.plan import EvaluationPlan, methods_of
    from mirage.training.evaluation.schedule import Evaluation

    names = pieces(methods)
    learned = _learned(names, schema)
    instants = _Instants(train_from, validate_from, bool(learned))
    config = load_cluster(cluster)
    plan = EvaluationPlan(
        methods=tuple(methods_of(names, learned, seeds, pieces(planner_error))),
        settings=_settings(config, cluster_nodes, nodes),
        train_from=instants.parsed("--train-from", train_from),
        validate_from=instants.parsed("--validate-from", validate_from),
        test_from=parse_instant(test_from, "--test-from"),
        test_to=parse_instant(test_to, "--test-to"),
        limit=limit_of("--limit", limit),
        every=duration_of("--every", every),
        teach_every=duration_of("--teach-every", teach_every or every),
        grid=duration_of("--grid", grid),
        teach_sizes=numbers("--also-with-nodes", also_with_nodes, least=1),
        partition=partition,
        schema=schema,
    )
    reporter = _Reporter(load_trace(trace), config, plan, out, html)
    evaluation = Evaluation(reporter.trace, config, plan, out, workers or os.cpu_count() or 1)
    with sentences() as say:
        found = evaluation.carry_out(say, reporter.write)
    reporter.show(found, as_json=as_json)


def _learned(names: tuple[str, ...], schema: str) -> frozenset[str]:
    """Return the methods to train. Raises ``UsageError``, also for an unknown feature schema."""
    from mirage.features.schema import schema as schema_named
    from mirage.training.evaluation.schedule import learned_names

    with value_of("--schema"):
        schema_named(schema)
    with value_of("--methods"):
        return learned_names(names)


def _settings(config: ClusterConfig, cluster_nodes: str, nodes: str) -> tuple[EvaluationSetting, ...]:
    from mirage.cli.arguments import numbers
    from mirage.training.evaluation.plan import EvaluationSetting

    sizes = numbers("--cluster-nodes", cluster_nodes, least=1) or (config.node_count,)
    return tuple(EvaluationSetting(size, count) for size in sizes for count in numbers("--nodes", nodes, least=1))


@dataclass(frozen=True, slots=True)
class _Instants:
    """Start times of training and validation set, required if a method is trained."""

    train_from: str
    validate_from: str
    wanted: bool

    def parsed(self, option: str, text: str) -> int:
        from mirage.cli.arguments import parse_instant
        from mirage.domain.errors import ConfigError

        if not text and self.wanted:
            raise ConfigError(option, "required for methods that are trained; give a date such as 2022-10-12")
        return parse_instant(text, option) if text else 0


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Writes and prints finished results."""

    trace: JobTable
    config: ClusterConfig
    plan: EvaluationPlan
    out: Path
    html: bool

    def write(self, found: list[Found]) -> None:
        from mirage.training.evaluation.figures import figures_of
        from mirage.training.evaluation.report import evaluation_page, markdown
        from mirage.training.evaluation.results import write_result

        write_result(self.out / "report.json", self._document(found))
        write_result(self.out / "report.md", markdown(self.plan, figures_of(found)))
        if self.html:
            title = f"Methods compared on {self.trace.source}"
            write_result(self.out / "report.html", evaluation_page(self.plan, figures_of(found), title))

    def show(self, found: list[Found], *, as_json: bool) -> None:
        from rich.console import Console

        from mirage.training.evaluation.figures import figures_of
        from mirage.training.evaluation.report import describe, evaluation_tables

        if as_json:
            typer.echo(self._document(found), nl=False)
            return
        console, figures = Console(), figures_of(found)
        for table in evaluation_tables(figures, console.width):
            console.print(table)
        for sentence in describe(self.plan, figures):
            console.print(sentence, markup=False, highlight=False)

    def _document(self, found: list[Found]) -> str:
        from mirage.training.evaluation.figures import figures_of
        from mirage.training.evaluation.report import document

        told = document(self.plan, figures_of(found), self.trace.source, self.config.name)
        return json.dumps(told, indent=1) + "\n"


Traces = Annotated[list[str], typer.Argument(metavar="TRACE...", help="Trace files that record waits.")]
KnownCluster = Annotated[
    str,
    typer.Option("--cluster", metavar="NAME", help="Cluster of a single trace; adds forecasts of the look-ahead."),
]
Most = Annotated[
    int,
    typer.Option(
        min=100, max=HIGHEST_COUNT, help="Maximum number of jobs per part; a larger part is sampled evenly."
    ),
]
Planned = Annotated[
    int, typer.Option("--lookahead-jobs", min=1, max=HIGHEST_COUNT, help="Number of jobs with a look-ahead.")
]
WaitsOut = Annotated[
    str, typer.Option("-o", "--output", metavar="DIR", help="Directory of waits.json and waits.md.")
]


@evaluate_app.command("waits", cls=OutputCommand)
def waits_command(
    traces: Traces,
    *,
    cluster: KnownCluster = "",
    seeds: Seeds = 3,
    most: Most = 20_000,
    lookahead_jobs: Planned = 200,
    out: WaitsOut = "",
    as_json: AsJson = False,
) -> None:
    """Forecast the recorded waits of traces, from the data known at each submission, and print the errors."""
    from rich.console import Console

    from mirage.cli.arguments import load_cluster, load_trace
    from mirage.cli.run_output import sentences
    from mirage.domain.errors import ConfigError
    from mirage.training.evaluation.results import write_result
    from mirage.training.evaluation.wait_comparison import (
        MEANING,
        Choice,
        compare_waits,
        wait_tables,
        waits_document,
        waits_markdown,
    )

    if cluster and len(traces) > 1:
        raise ConfigError("--cluster", "only valid with a single trace")
    config = load_cluster(cluster) if cluster else None
    choice = Choice(most, seeds, lookahead_jobs)
    with sentences() as say:
        figures = [compare_waits(load_trace(trace), choice, config, say) for trace in traces]
    text = json.dumps(waits_document(figures), indent=1) + "\n"
    if out:
        write_result(Path(out) / "waits.json", text)
        write_result(Path(out) / "waits.md", waits_markdown(figures))
    if as_json:
        typer.echo(text, nl=False)
        return
    console = Console()
    for table in wait_tables(figures):
        console.print(table)
    console.print(MEANING, markup=False, highlight=False)

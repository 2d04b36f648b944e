"""``mirage evaluate``: every method against every other on a trace, trained before the test and told honestly."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from mirage.cli.oldoptions import OutputCommand
from mirage.cli.traceoptions import Cluster, Limit, NodeCounts, PartitionName, Schema, Trace, Workers
from mirage.cli.usage import duration_of, limit_of, value_of
from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_FACTOR

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.evaluation.plan import EvaluationPlan, Setting
    from mirage.training.evaluation.schedule import Found

METHODS = "reactive,fixed:6h,average,quantile,slurm,random-forest,xgboost,dqn,policy-gradient,lookahead,oracle"
DEFAULT = "replay"


class _WithDefault(TyperGroup):
    """``mirage evaluate TRACE`` is ``mirage evaluate replay TRACE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Says the default where no command is said."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


evaluate_app = typer.Typer(
    cls=_WithDefault,
    no_args_is_help=True,
    help="Compare all methods on a trace: mirage evaluate TRACE ... is short for mirage evaluate replay TRACE ...",
)

Out = Annotated[
    Path,
    typer.Option(
        "-o", "--output", help="Directory of tables, models, episodes and reports; what is there is used."
    ),
]
TrainFrom = Annotated[str, typer.Option(help="First handover that is learned from: a date, or epoch seconds.")]
ValidateFrom = Annotated[str, typer.Option(help="Handovers from here on choose the models.")]
TestFrom = Annotated[str, typer.Option(help="First episode; nothing that happens later is learned from.")]
TestTo = Annotated[str, typer.Option(help="No episode starts after this.")]
Methods = Annotated[str, typer.Option(help="Predictors, comma-separated: name or name:parameter, and oracle.")]
ClusterNodes = Annotated[str, typer.Option(help="Sizes of the cluster, comma-separated; its own by default.")]
Also = Annotated[
    str,
    typer.Option(
        "--also-with-nodes", help="Learn the earlier handovers also on the cluster cut down to so many nodes."
    ),
]
Errors = Annotated[
    str,
    typer.Option(
        "--planner-error",
        help="Play the look-ahead also with a wrong idea of the cluster, comma-separated: nodes+5%, nodes-5%, "
        "no-user-limit, priorities, month-old.",
    ),
]
Seeds = Annotated[int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Models of each learned method.")]
Every = Annotated[str, typer.Option(help="Between episodes.")]
TeachEvery = Annotated[str, typer.Option(help="Between handovers that are learned from; as --every by default.")]
Grid = Annotated[str, typer.Option(help="Between submit times that are learned from.")]
Html = Annotated[bool, typer.Option("--html", help="Write report.html to --output as well.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout instead of the tables.")]


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
    """Train every method that learns, play all of them on the test span, and compare.

    Episodes, models and tables are kept in --output: the command continues where it was stopped, and more methods,
    seeds or sizes only add to it. The comparison is written to report.json and report.md there as it grows.
    """
    from mirage.cli.arguments import load_cluster, load_trace, numbers, parse_instant, pieces
    from mirage.cli.progress import sentences
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
    """The methods that are to be trained. Raises ``UsageError``, also for features that do not exist."""
    from mirage.features.schema import schema as schema_named
    from mirage.training.evaluation.schedule import learned_names

    with value_of("--schema"):
        schema_named(schema)
    with value_of("--methods"):
        return learned_names(names)


def _settings(config: ClusterConfig, cluster_nodes: str, nodes: str) -> tuple[Setting, ...]:
    from mirage.cli.arguments import numbers
    from mirage.training.evaluation.plan import Setting

    sizes = numbers("--cluster-nodes", cluster_nodes, least=1) or (config.node_count,)
    return tuple(Setting(size, count) for size in sizes for count in numbers("--nodes", nodes, least=1))


@dataclass(frozen=True, slots=True)
class _Instants:
    """Spans of learning must be said where something learns, and only there."""

    train_from: str
    validate_from: str
    wanted: bool

    def parsed(self, option: str, text: str) -> int:
        from mirage.cli.arguments import parse_instant
        from mirage.domain.errors import ConfigError

        if not text and self.wanted:
            raise ConfigError(option, "is needed where a method learns, such as 2022-10-12")
        return parse_instant(text, option) if text else 0


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Writes and shows what is finished."""

    trace: JobTable
    config: ClusterConfig
    plan: EvaluationPlan
    out: Path
    html: bool

    def write(self, found: list[Found]) -> None:
        from mirage.training.evaluation.figures import figures_of
        from mirage.training.evaluation.page import evaluation_page
        from mirage.training.evaluation.report import markdown
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


Traces = Annotated[list[str], typer.Argument(metavar="TRACE...", help="Trace files with recorded waits.")]
KnownCluster = Annotated[
    str, typer.Option("--cluster", help="The cluster of the one trace: a look-ahead forecasts as well.")
]
Most = Annotated[
    int,
    typer.Option(
        min=100, max=HIGHEST_COUNT, help="Jobs of each part, at most; evenly spaced where there are more."
    ),
]
Planned = Annotated[
    int, typer.Option("--lookahead-jobs", min=1, max=HIGHEST_COUNT, help="Jobs for which a look-ahead is played.")
]
WaitsOut = Annotated[str, typer.Option("-o", "--output", help="Directory for waits.json and waits.md.")]


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
    """Forecast the waits that traces recorded, from what was known as each job was submitted."""
    from rich.console import Console

    from mirage.cli.arguments import load_cluster, load_trace
    from mirage.cli.progress import sentences
    from mirage.domain.errors import ConfigError
    from mirage.training.evaluation.results import write_result
    from mirage.training.evaluation.waits.comparing import Choice, compare_waits
    from mirage.training.evaluation.waits.report import MEANING, wait_tables, waits_document, waits_markdown

    if cluster and len(traces) > 1:
        raise ConfigError("--cluster", "is that of one trace: compare its waits by themselves")
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

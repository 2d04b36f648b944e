"""``mirage train``: train a predictor on a simulated trace."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mirage.cli.arguments import duration_of, limit_of, value_of
from mirage.cli.shared_options import Cluster, Limit, NodeCounts, PartitionName, Schema
from mirage.domain.bounds import MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.domain.jobtable import JobTable
    from mirage.features.table import FeatureSchema
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.dataset_split import DatasetSplit, TrainingRun
    from mirage.training.launch import SlurmJobs
    from mirage.training.tables import TablePlan

JOBS, CPUS = 8, 8
"""With launcher slurm: jobs that build a table, and CPUs of a training job."""

Name = Annotated[
    str, typer.Argument(metavar="PREDICTOR", help="Predictor to train, such as xgboost or random-forest.")
]
Trace = Annotated[
    str, typer.Option(metavar="TRACE", help="Trace file, or generated:PRESET:SEED such as generated:ls6:1.")
]
Out = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="New directory of the trained model and manifest."),
]
Start = Annotated[
    str, typer.Option(metavar="TIME", help="First handover: 2022-10-12, 2022-10-12T12:00 (UTC), or epoch seconds.")
]
End = Annotated[str, typer.Option(metavar="TIME", help="End of the training data.")]
ValidateFrom = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="Start of the validation set (default: the last quarter of the time range)."
    ),
]
Every = Annotated[str, typer.Option(metavar="TIME", help="Time between two handovers.")]
Grid = Annotated[str, typer.Option(metavar="TIME", help="Time between two simulated submit times of a handover.")]
Sizes = Annotated[
    str,
    typer.Option(
        "--also-with-nodes",
        metavar="LIST",
        help="Also generate training data on the cluster reduced to N nodes, comma-separated numbers. Useful if "
        "the trace has little queueing.",
    ),
]
Seed = Annotated[
    str,
    typer.Option(
        metavar="LIST", help="Random seeds, comma-separated; several train one model each: DIR/seed-0 and so on."
    ),
]
Tables = Annotated[
    str,
    typer.Option("--tables", metavar="DIR", help="Directory of the tables; existing ones are reused."),
]
Launched = Annotated[
    Literal["local", "slurm"],
    typer.Option(
        help="local: on this machine; slurm: as your jobs, with SBATCH_PARTITION, SBATCH_ACCOUNT and so on; "
        "--tables and --output must then be on a file system that the nodes share."
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        min=0,
        max=MOST_WORKERS,
        help=f"Number of processes, or jobs, per table; 0: one per CPU, or {JOBS} jobs.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the manifest as one JSON document on stdout.")]


def train_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    predictor: Name,
    *,
    trace: Trace,
    cluster: Cluster,
    out: Out,
    start: Start,
    end: End,
    validate_from: ValidateFrom = "",
    nodes: NodeCounts = "1,8",
    limit: Limit = "48h",
    every: Every = "4h",
    grid: Grid = "30m",
    also_with_nodes: Sizes = "",
    partition: PartitionName = "",
    schema: Schema = "v2",
    seed: Seed = "0",
    tables: Tables = "",
    launcher: Launched = "local",
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Train a predictor on a trace: simulate the result of each submit time, fit a model and write it.

    The handovers after --validate-from select the model, which is then fitted to all handovers.
    """
    from mirage.artifact import refuse_existing
    from mirage.cli.arguments import load_cluster, load_trace, numbers
    from mirage.simulator.cluster import with_nodes
    from mirage.training.dataset_split import TrainingRun
    from mirage.training.tables import TablePlan

    features = _checked(predictor, schema)
    outs = _outs(out, numbers("--seed", seed))
    for each in outs.values():
        refuse_existing(each)
    lessons = _lessons(start, validate_from, end)
    plan = TablePlan(
        lessons.first,
        lessons.end,
        numbers("--nodes", nodes, least=1),
        limit_of("--limit", limit),
        duration_of("--every", every),
        duration_of("--grid", grid),
        partition,
    )
    place = _LaunchPlace(launcher, workers)
    maker = _Maker(load_trace(trace, option="--trace"), plan, features, place)
    config = load_cluster(cluster)
    smaller = [with_nodes(config, count) for count in numbers("--also-with-nodes", also_with_nodes, least=1)]
    with place.folder(tables) as folder:
        whole = maker.table(config, folder)
        teaching = replace(maker, plan=replace(plan, end=lessons.validate_from))  # the smaller ones do not choose
        found = (whole, *(teaching.table(one, folder) for one in smaller))
        place.run([TrainingRun(predictor, lessons, found, each, outs[each].absolute()) for each in outs], folder)
    _show(tuple(outs.values()), as_json=as_json)


def _checked(predictor: str, schema: str) -> FeatureSchema:
    """The schema; what is missing is reported before tables are built. Raises ``UsageError``."""
    from mirage.features.schema import schema as schema_named
    from mirage.predictors.registry import build_trainer

    with value_of("PREDICTOR"):
        build_trainer(predictor)
    with value_of("--schema"):
        return schema_named(schema)


def _lessons(start: str, validate_from: str, end: str) -> DatasetSplit:
    """Return the time range and the start of validation. Raises ``ConfigError``."""
    from mirage.cli.arguments import parse_instant
    from mirage.training.dataset_split import DatasetSplit

    first, last = parse_instant(start, "--start"), parse_instant(end, "--end")
    later = parse_instant(validate_from, "--validate-from") if validate_from else first + 3 * (last - first) // 4
    return DatasetSplit(first, later, last)


def _outs(out: Path, seeds: tuple[int, ...]) -> dict[int, Path]:
    """Return the directory of each seed's model."""
    from mirage.domain.errors import ConfigError

    if not seeds:
        raise ConfigError("--seed", "no seed given; expected numbers such as 0,1,2")
    return {seeds[0]: out} if len(seeds) == 1 else {seed: out / f"seed-{seed}" for seed in seeds}


@dataclass(frozen=True, slots=True)
class _LaunchPlace:
    """Launcher and number of workers."""

    launcher: str
    workers: int

    @contextmanager
    def folder(self, tables: str) -> Iterator[Path]:
        """Yield the directory of the tables. Raises ``ConfigError`` if the nodes would not share it."""
        from mirage.domain.errors import ConfigError

        if tables:
            yield Path(tables).absolute()
        elif self.launcher == "slurm":
            raise ConfigError("--tables", "required with --launcher slurm; name a directory that the nodes share")
        else:
            with TemporaryDirectory() as passing:
                yield Path(passing)

    def builders(self, folder: Path) -> int | SlurmJobs:
        """Return the number of processes for a table, or the jobs."""
        if self.launcher == "slurm":
            return self._jobs(folder, "mirage-table", 1, self.workers or JOBS)
        return self.workers or os.cpu_count() or 1

    def run(self, trainings: Sequence[TrainingRun], folder: Path) -> None:
        """Run the trainings one after another, or each as a job."""
        work = [training.run for training in trainings]
        if self.launcher == "slurm":
            for _ in self._jobs(folder, "mirage-train", CPUS).watched(work):
                pass
            return
        for one in work:
            one()

    def _jobs(self, folder: Path, name: str, cpus: int, count: int = 1) -> SlurmJobs:
        from mirage.training.launch import SlurmJobs

        return SlurmJobs(folder / "jobs", name, cpus, count)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Builds tables, or reuses existing ones."""

    jobs: JobTable
    plan: TablePlan
    schema: FeatureSchema
    place: _LaunchPlace

    def table(self, config: ClusterConfig, folder: Path) -> Path:
        """Build the table and return its directory."""
        from mirage.cli.run_output import steps
        from mirage.training.tables import build_table

        name = f"{config.name}-{config.node_count}-nodes-{self.schema.name}"
        with steps(name) as advance:
            build_table(
                self.jobs,
                config,
                self.plan,
                self.schema,
                folder / name,
                workers=self.place.builders(folder),
                on_progress=advance,
            )
        return folder / name


def _show(outs: tuple[Path, ...], *, as_json: bool) -> None:
    from mirage.predictors.model_manifest import read_manifest

    manifests = [read_manifest(out) for out in outs]
    if as_json:
        texts = [manifest.text().strip() for manifest in manifests]
        typer.echo(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        return
    for manifest, out in zip(manifests, outs, strict=True):
        scores = ", ".join(f"{name} {value:.3g}" for name, value in manifest.metrics.items())
        typer.echo(
            f"{out}: {manifest.plugin}, trained on {manifest.training.handovers} handovers of "
            f"{manifest.cluster.name}"
        )
        typer.echo(f"validation set: {scores}")
        typer.echo(f"use: --predictor {manifest.plugin}:{out}    promote: mirage models promote {out}")

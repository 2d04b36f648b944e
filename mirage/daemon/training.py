"""Trains models periodically on the jobs that the daemon knows, and tests them on later weeks.

A training runs as a process on this machine or as a job on the cluster.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mirage.atomic_file import read_regular, write_atomically
from mirage.backends.background import last_line, run_aside
from mirage.daemon.proof import LEAST, NAIVE, USUAL, proofs_of, spans_of
from mirage.documentreading import parse_json
from mirage.domain.errors import MirageError
from mirage.domain.job import ABSENT
from mirage.ownprocess import own_python
from mirage.training.launch import JobFailed, SlurmJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Event

    from mirage.daemon.proof import Spans, TrialCosts
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.domain.objective import Weights
    from mirage.ports import Clock
    from mirage.predictors.model_registry import ModelRegistry

_CPUS = 8
"""Resources that a training job requests."""


class TrainingFailed(MirageError):
    """A training ended badly; the text has its last words."""


class Launcher(Protocol):
    """Runs one training command to its end, on this machine or as a job."""

    workers: int
    """Processes that it has room for."""

    def run(self, argv: Sequence[str], folder: Path, stopped: Event) -> bool:
        """Whether it ended well; ``False``: it was ended because ``stopped`` was set.

        What it says is in ``folder``. Raises ``TrainingFailed``.
        """


class LocalLauncher:
    """A process of least priority next to the daemon."""

    workers = 1

    def run(self, argv: Sequence[str], folder: Path, stopped: Event) -> bool:
        """Run the command as a child process. See ``Launcher``."""
        log = folder / "train.log"
        status = run_aside(argv, folder, log, stopped.wait)
        if status:
            raise TrainingFailed(f"exit {status}: {last_line(log)}; full log in {log}")
        return status is not None


class SlurmLauncher:
    """A job of the daemon's user, by submitit; its partition and account are as ``SBATCH_PARTITION`` and such say.

    ``folder`` must be on a file system that the nodes share.
    """

    workers = _CPUS

    def __init__(self, cluster: str = "slurm") -> None:
        """``cluster``: submitit's name of where jobs run. Raises ``MissingExtra``; ``ConfigError``: no Slurm."""
        self._cluster = cluster
        self._jobs(Path()).check()

    def run(self, argv: Sequence[str], folder: Path, stopped: Event) -> bool:
        """Run the command as a Slurm job. See ``Launcher``."""
        work = [partial(_run_command, tuple(argv), str(folder))]
        with closing(self._jobs(folder).watched(work)) as job:
            try:
                for _ in job:
                    if stopped.is_set():
                        return False
            except JobFailed as error:
                raise TrainingFailed(str(error)) from error
        return True

    def _jobs(self, folder: Path) -> SlurmJobs:
        return SlurmJobs(folder / "jobs", "mirage-train", _CPUS, cluster=self._cluster)


def _run_command(argv: tuple[str, ...], folder: str) -> None:
    subprocess.run(argv, cwd=folder, check=True)  # noqa: S603 - this program itself


_LOG = logging.getLogger(__name__)

_LARGEST_REPORT = 16 * 1024 * 1024
_SEED = 0
_TRIES = 3
"""Tries of a training that ends with the daemon: the training may be what ends it."""


@dataclass(frozen=True, slots=True)
class RetrainingSettings:
    """Models to train, on what data, and how often."""

    every: Seconds
    predictors: tuple[str, ...]
    nodes: tuple[int, ...]
    """Sizes of the links; at most the partition's number of nodes."""
    limit: Seconds
    """Of the links, or the partition's where that is less."""
    span: Seconds
    """Length of the history whose jobs are used, in seconds."""
    weights: Weights
    partition: str = ""
    promote: bool = True
    """Whether a model that has proven itself is put in use."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A training, as it is noted for a daemon to come."""

    begun: Seconds
    """Instant."""
    tries: int = 1
    """Number of starts."""
    over: bool = False
    """Whether it has ended; else the daemon was killed meanwhile."""


@dataclass(frozen=True, slots=True)
class Retraining:
    """Trains a model when the last one is older than its interval."""

    curriculum: RetrainingSettings
    jobs: Callable[[Seconds], JobTable]
    """Jobs submitted since a time."""
    cluster: Callable[[Path], str]
    """Value of ``mirage evaluate --cluster``; may write files into the directory."""
    launcher: Launcher
    clock: Clock
    folder: Path
    """For its files."""
    shelf: ModelRegistry
    """On which the results are kept."""
    changed: Callable[[], None]
    """Called when another model is in use, or in shadow."""
    stopped: Event

    def run(self) -> str:
        """Train if it is due; return a text with the result, empty if nothing is due.

        One that fails is due again after the same span; one that was killed with the daemon, immediately. Raises
        ``MirageError``.
        """
        now, plan, last = self.clock.now(), self.curriculum, self._last()
        if last.over and 0 <= now - last.begun < plan.every:
            return ""
        jobs = self.jobs(now - plan.span)
        if not len(jobs) or now - int(jobs.submit[0]) < LEAST:
            return ""
        begun = Begun(now, 1 if last.over else last.tries + 1)
        self._note(begun)
        try:
            return self._train(jobs, now)
        finally:
            if self._marker.exists():
                self._note(replace(begun, over=True))

    def _train(self, jobs: JobTable, now: Seconds) -> str:
        from mirage.trace.parquet import write_table

        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        cluster = self.cluster(work)
        nodes, limit = self._links(cluster)
        spans = spans_of(int(jobs.submit[0]), min(now, int(jobs.submit[-1])), limit)
        if spans is None:
            self._forget()
            return ""  # links of this length need a longer past
        write_table(jobs, work / "jobs.parquet")
        in_use = {
            name: folder for name, folder in self.shelf.in_use().items() if name in self.curriculum.predictors
        }
        others = [f"{name}:{folder}" for name, folder in in_use.items()]
        tries = self._last().tries
        names = ", ".join(self.curriculum.predictors)
        text = "event=training_started predictors=%r jobs=%d nodes=%s attempt=%d"
        _LOG.info(text, names, len(jobs), ",".join(map(str, nodes)), max(tries, 1))
        argv = self._command(work, cluster, spans, nodes, limit, others)
        if not self.launcher.run(argv, work, self.stopped):
            self._forget()
            return "stopped because the daemon stops; the next start repeats it"
        said = self._judge(work, spans, in_use)
        shutil.rmtree(work, ignore_errors=True)
        return said

    def _links(self, cluster: str) -> tuple[tuple[int, ...], Seconds]:
        """Sizes that fit, and their time limit. Raises ``MirageError``."""
        from mirage.simulator.configuration.clusterfile import load_cluster

        plan, config = self.curriculum, load_cluster(cluster)
        named = [part for part in config.partitions if part.name == plan.partition]
        partition = (named or [part for part in config.partitions if part.default] or list(config.partitions))[0]
        most = min(len(partition.nodes), partition.max_nodes or len(partition.nodes))
        sizes = dict.fromkeys(min(count, most) for count in plan.nodes)
        return tuple(sizes), min(plan.limit, partition.max_time)

    def _command(
        self, work: Path, cluster: str, spans: Spans, nodes: Sequence[int], limit: Seconds, others: Sequence[str]
    ) -> Sequence[str]:
        options = {
            "--cluster": cluster,
            "--train-from": str(spans.train_from),
            "--validate-from": str(spans.validate_from),
            "--test-from": str(spans.test_from),
            "--test-to": str(spans.test_to),
            "--teach-every": f"{spans.teach_every}s",
            "--every": f"{spans.test_every}s",
            "--nodes": ",".join(str(count) for count in nodes),
            "--limit": f"{limit}s",
            "--partition": self.curriculum.partition,
            "--methods": ",".join([NAIVE, USUAL, *self.curriculum.predictors, *others]),
            "--seeds": "1",
            "--workers": str(self.launcher.workers),
            "--output": str(work / "evaluation"),
        }
        told = [word for pair in options.items() if pair[1] for word in pair]
        return own_python("-m", "mirage", "evaluate", str(work / "jobs.parquet"), *told)

    def _judge(self, work: Path, spans: Spans, in_use: dict[str, Path]) -> str:
        """Keep what was trained; use what has proven itself, watch the rest. Says so."""
        made = work / "evaluation"
        try:
            report = read_regular(made / "report.json", _LARGEST_REPORT)
        except OSError as error:
            raise MirageError(f"the training left no report: {error}") from None
        proofs, said = proofs_of(report, self.curriculum.weights), []
        for name in self.curriculum.predictors:
            found = sorted((made / "models" / name).glob(f"seed-{_SEED}-*"))
            if name not in proofs or not found:
                raise MirageError(f"the training left no model of {name} in {made}")
            before = in_use.get(name)
            said.append(self._place(found[-1], proofs[name], proofs.get(f"{name}:{before}"), spans))
        self.changed()
        return "; ".join(said)

    def _place(self, model: Path, proof: TrialCosts, before: TrialCosts | None, spans: Spans) -> str:
        from mirage.predictors.model_registry import read_package

        kept = self.shelf.keep(model)
        if kept.current:
            return f"{kept.name}:{kept.version} is active already"
        told, fault = f"{kept.name}:{kept.version}: {proof}", proof.fault(spans.tested, before)
        if fault or not self.curriculum.promote:
            self.shelf.watch(kept)
            why = fault or f"`mirage models promote {kept.name}:{kept.version}` activates it"
            return f"{told}: in shadow ({why})"
        self.shelf.put_in_use(read_package(model))
        return f"{told}: active from now on"

    def _last(self) -> Begun:
        """The last training that began here; without one it is long ago."""
        try:
            noted = parse_json(self._marker.read_text(encoding="utf-8"))
            begun, tries = int(noted["begun"]), int(noted.get("tries", 1))
            return Begun(begun, tries, over=bool(noted.get("over", True)) or tries >= _TRIES)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Begun(ABSENT, over=True)

    def _note(self, begun: Begun) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            write_atomically(self._marker, json.dumps(asdict(begun)).encode())
        except OSError as error:
            raise MirageError(f"cannot write {self._marker}, so no model is trained: {error}") from error

    def _forget(self) -> None:
        self._marker.unlink(missing_ok=True)

    @property
    def _marker(self) -> Path:
        return self.folder / "last.json"

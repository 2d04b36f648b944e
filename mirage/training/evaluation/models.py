"""Trained models of an evaluation: each is trained once and reused."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING

from mirage.artifact import MANIFEST
from mirage.documentfaults import reader_of
from mirage.documenttext import parse_own_json
from mirage.domain.errors import ConfigError
from mirage.features.schema import schema
from mirage.predictors.artifacts.manifest import read_manifest, verify_files
from mirage.predictors.registry import build_trainer
from mirage.simulator.configuration.resize import with_nodes
from mirage.training.evaluation.results import mark_of, write_result
from mirage.training.fingerprint import cluster_fingerprint, trace_fingerprint
from mirage.training.tables import build_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirage.domain.jobtable import JobTable
    from mirage.features.table import Table
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.evaluation.plan import EvaluationPlan, Run

TOOK = "took.json"
"""File next to the models of a predictor: seconds of each training."""
_TOOK = reader_of(dict[str, float])


@dataclass(frozen=True, slots=True)
class Model:
    """A trained model on disk."""

    folder: Path
    mark: str
    """SHA-256 (hex) of its manifest, which holds those of its files."""
    seconds: float | None
    """Seconds of its training (wall-clock time); ``None`` where not recorded."""


@dataclass(frozen=True, slots=True)
class Learned:
    """All models that were trained for one run."""

    models: tuple[tuple[str, Model], ...]
    """Models by predictor name, one or more."""

    @property
    def mark(self) -> str:
        """SHA-256 of all models."""
        marks = [model.mark for _, model in self.models]
        return marks[0] if len(marks) == 1 else sha256("".join(marks).encode()).hexdigest()

    @property
    def seconds(self) -> float | None:
        """Seconds of all trainings; ``None`` where any is not recorded."""
        times = [model.seconds for _, model in self.models if model.seconds is not None]
        return sum(times) if len(times) == len(self.models) else None


class TrainedModels:
    """Trains missing models; builds tables at the first training that needs them."""

    def __init__(
        self, trace: JobTable, cluster: ClusterConfig, plan: EvaluationPlan, folder: Path, workers: int
    ) -> None:
        self._trace, self._cluster, self._plan, self._folder = trace, cluster, plan, folder
        self._workers = workers
        self._tables: tuple[Table, Table] | None = None

    def learned(self, run: Run, say: Callable[[str], None]) -> Learned:
        """The models of one method and seed. ``say`` reports steps that take long.

        Raises ``ConfigError`` for spans without training data, ``ArtifactMismatch`` for a damaged model.
        """
        return Learned(tuple((name, self._model(name, run.seed, say)) for name in run.method.taught))

    def _model(self, name: str, seed: int, say: Callable[[str], None]) -> Model:
        folder = self._folder / "models" / name / f"seed-{seed}-{self._mark()}"
        if not folder.exists():
            self._train(name, seed, folder, say)
        manifest = read_manifest(folder)
        verify_files(folder, manifest)
        mark = sha256((folder / MANIFEST).read_bytes()).hexdigest()
        return Model(folder, mark, _took(folder.parent).get(folder.name))

    def _train(self, name: str, seed: int, folder: Path, say: Callable[[str], None]) -> None:
        teaching, choosing = self._lessons(say)
        say(f"training {name} seed {seed}")
        begin = perf_counter()
        build_trainer(name).train(teaching, choosing, seed, folder)
        took = _took(folder.parent) | {folder.name: perf_counter() - begin}
        write_result(folder.parent / TOOK, json.dumps(took, indent=1) + "\n")

    def _lessons(self, say: Callable[[str], None]) -> tuple[Table, Table]:
        if self._tables is None:
            sizes = dict.fromkeys((self._cluster.node_count, *self._plan.teach_sizes))
            whole, *others = [self._table(size, say) for size in sizes]
            self._tables = self._plan.lessons.split(whole, others)
        return self._tables

    def _table(self, size: int, say: Callable[[str], None]) -> Table:
        config = with_nodes(self._cluster, size) if size != self._cluster.node_count else self._cluster
        plan, features = self._plan.tables, schema(self._plan.schema)
        if (
            size != self._cluster.node_count
        ):  # a smaller cluster only trains, because its queues are slow to simulate
            plan = replace(plan, end=self._plan.validate_from)
        mark = mark_of(asdict(plan) | self._origin(config) | {"schema": features.hash})
        name = f"{config.name}-{size}-nodes-{features.name}-{mark}"
        return build_table(
            self._trace,
            config,
            plan,
            features,
            self._folder / "tables" / name,
            workers=self._workers,
            on_progress=lambda done, total: say(f"table of {size} nodes: {done} of {total} starts"),
        )

    def _mark(self) -> str:
        """Mark of everything that a model depends on, besides its name, its seed and the code."""
        plan = self._plan
        spans = {"first": plan.train_from, "validate": plan.validate_from, "end": plan.test_from}
        taught = {"sizes": plan.teach_sizes, "schema": schema(plan.schema).hash}
        return mark_of(asdict(plan.tables) | self._origin(self._cluster) | spans | taught)

    def _origin(self, config: ClusterConfig) -> dict[str, str]:
        return {"trace": trace_fingerprint(self._trace), "cluster": cluster_fingerprint(config)}


def _took(folder: Path) -> dict[str, float]:
    try:
        return _TOOK.validate_python(parse_own_json((folder / TOOK).read_bytes()))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(str(folder / TOOK), f"cannot be read: {error}; delete it") from None

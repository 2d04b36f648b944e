"""What an evaluation keeps in its directory: finished episodes and trained models.

``played/SETTING/RUN-MARK/PART.json``: episodes are stored under a mark of everything that they depend on. A change
of the mark (another span, cluster, trace, model) leads to a new run next to the stored one; without a change the
stored result is used. Each model is trained once and reused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mirage.artifact import MANIFEST
from mirage.atomic_file import write_atomically
from mirage.documentreading import parse_own_json, reader_of
from mirage.domain.errors import ConfigError
from mirage.features.schema import schema
from mirage.predictors.model_manifest import read_manifest, verify_files
from mirage.predictors.registry import build_trainer
from mirage.simulator.cluster import with_nodes
from mirage.training.chunks import cluster_fingerprint, trace_fingerprint
from mirage.training.evaluation.playing import PROBES, PlayedEpisode, ScoredForecast
from mirage.training.tables import build_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirage.domain.jobtable import JobTable
    from mirage.features.table import Table
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.evaluation.plan import EvaluationPlan, EvaluationRun, EvaluationSetting

FORMAT = 1
_DIGITS = 12


def mark_of(circumstances: Mapping[str, object]) -> str:
    """A short mark of circumstances: equal where they are (SHA-256 of their JSON text, hex, truncated)."""
    return sha256(json.dumps(circumstances, sort_keys=True).encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run on one setting."""

    setting: EvaluationSetting
    run: EvaluationRun
    circumstances: tuple[tuple[str, object], ...]
    """Everything that its outcomes depend on, besides the code."""

    @property
    def place(self) -> Path:
        """Its directory, relative to the evaluation's."""
        mark = mark_of(dict(self.circumstances) | {"format": FORMAT, "probes": PROBES})
        setting = f"{self.setting.cluster_nodes}-nodes-{self.setting.nodes}"
        return Path("played") / setting / f"{quote(self.run.label, safe='')}-{mark}"


def read_part(folder: Path, cell: Cell, numbers: Sequence[int]) -> list[PlayedEpisode] | None:
    """The stored episodes of these numbers; ``None`` where they are missing or incomplete."""
    try:
        document = parse_own_json(_path(folder, cell, numbers).read_bytes())
        episodes = [_played(one) for one in document["episodes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return episodes if [one.number for one in episodes] == list(numbers) else None


def write_part(folder: Path, cell: Cell, episodes: Sequence[PlayedEpisode]) -> None:
    """Store episodes, completely or not at all."""
    path = _path(folder, cell, [one.number for one in episodes])
    document = {
        "circumstances": dict(cell.circumstances) | {"run": cell.run.label},
        "episodes": [asdict(one) for one in episodes],
    }
    write_result(path, json.dumps(document) + "\n")


def write_result(path: Path, text: str) -> None:
    """Write a file atomically, and create its directory if necessary: no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())


def _path(folder: Path, cell: Cell, numbers: Sequence[int]) -> Path:
    return folder / cell.place / f"{numbers[0]:05d}-{numbers[-1]:05d}.json"


def _played(document: dict[str, Any]) -> PlayedEpisode:
    forecasts = tuple(
        ScoredForecast(one["lead"], tuple(one["levels"]), tuple(one["waits"]), one["wait"])
        for one in document["forecasts"]
    )
    return PlayedEpisode(**(document | {"troubles": tuple(document["troubles"]), "forecasts": forecasts}))


TOOK = "took.json"
"""File next to the models of a predictor: seconds of each training."""
_TOOK = reader_of(dict[str, float])


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A trained model on disk."""

    folder: Path
    mark: str
    """SHA-256 (hex) of its manifest, which holds those of its files."""
    seconds: float | None
    """Seconds of its training (wall-clock time); ``None`` where not recorded."""


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """All models that were trained for one run."""

    models: tuple[tuple[str, TrainedModel], ...]
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

    def learned(self, run: EvaluationRun, say: Callable[[str], None]) -> TrainedRun:
        """The models of one method and seed. ``say`` reports steps that take long.

        Raises ``ConfigError`` for spans without training data, ``ArtifactMismatch`` for a damaged model.
        """
        return TrainedRun(tuple((name, self._model(name, run.seed, say)) for name in run.method.taught))

    def _model(self, name: str, seed: int, say: Callable[[str], None]) -> TrainedModel:
        folder = self._folder / "models" / name / f"seed-{seed}-{self._mark()}"
        if not folder.exists():
            self._train(name, seed, folder, say)
        manifest = read_manifest(folder)
        verify_files(folder, manifest)
        mark = sha256((folder / MANIFEST).read_bytes()).hexdigest()
        return TrainedModel(folder, mark, _took(folder.parent).get(folder.name))

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

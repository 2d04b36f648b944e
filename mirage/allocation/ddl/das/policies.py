"""The trained agents: their files, and their use as ordering policy and placement policy.

The files are a directory with two ONNX graphs and a manifest with the SHA-256 of each.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage import __version__
from mirage.allocation.ddl.das.kernel import posterior_weights, walk, walked_mean
from mirage.allocation.ddl.das.observation import EYE, SCHEMA, SCHEMA_HASH, DasObservation, Settling, with_room
from mirage.allocation.graph import Graph
from mirage.artifact import (
    MANIFEST,
    digests_of,
    library_versions,
    manifest_as,
    manifest_text,
    read_files,
    read_manifest,
    refuse_other_schema,
    write_folder,
)
from mirage.documentreading import reader_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.pool import Placement, PoolView, TaskTable

FORMAT = 1
ORDERING, PLACEMENT = "ordering.onnx", "placement.onnx"


@dataclass(frozen=True, slots=True)
class Process:
    """The random-walk Gaussian process next to its network. ``walks`` false: affinities are the means of the
    network."""

    walks: bool
    decay: float
    """The kernel's lambda."""
    noise: float
    """Variance of the observations."""


@dataclass(frozen=True, slots=True)
class DasManifest:
    """Metadata of trained agents."""

    process: Process
    training: dict[str, Any]
    """Training tasks and pool, seeds and rounds."""
    metrics: dict[str, float]
    """Results on the validation sets."""
    libraries: dict[str, str]
    files: dict[str, str]
    """SHA-256 (hex) of every other file."""
    plugin: str = "das"
    schema: str = SCHEMA
    schema_hash: str = SCHEMA_HASH
    mirage: str = __version__
    format: int = FORMAT


_MANIFEST = reader_of(DasManifest)


def read_artifact(folder: Path) -> tuple[DasManifest, dict[str, bytes]]:
    """The manifest and the verified files. Raises ``ArtifactMismatch`` naming the file."""
    manifest = manifest_as(_MANIFEST, read_manifest(folder, FORMAT), folder, "DAS's agents")
    refuse_other_schema(folder, (manifest.schema, manifest.schema_hash), (SCHEMA, SCHEMA_HASH))
    return manifest, read_files(folder, manifest.files, (ORDERING, PLACEMENT))


def write_artifact(
    folder: Path,
    graphs: Mapping[str, bytes],
    process: Process,
    training: dict[str, Any],
    metrics: dict[str, float],
) -> Path:
    """Write agents to ``folder``, completely or not at all. Raises ``ConfigError`` for an existing directory."""
    manifest = DasManifest(process, training, metrics, library_versions("torch"), digests_of(graphs))
    return write_folder(folder, {**graphs, MANIFEST: manifest_text(asdict(manifest)).encode()})


Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


AT_ONCE = 64
"""Number of tasks whose affinities are computed together: a pool is mostly full before all were computed."""


class DasOrdering:
    """The ordering agent's policy: the mean of its priority scores."""

    def __init__(self, graph: Graph, name: str = "das") -> None:
        self.name = name
        self._graph = graph

    def score(self, view: PoolView) -> Float64:
        """See ``ports.Ordering``."""
        sight = EYE.look(view)
        if not sight.waiting:
            return np.zeros(0)
        task, base = sight.task[: sight.waiting], sight.base[: sight.waiting].astype(np.float32)
        mask = np.ones((1, sight.waiting), dtype=np.float32)
        (scores,) = self._graph.run(base=base[None], task=task[None], node=sight.node[None], mask=mask)
        return np.asarray(scores[0], dtype=np.float64)

    def static_scores(self, tasks: TaskTable) -> Float64 | None:
        """None: scores depend on the state of the pool."""
        return None


class DasPlacer:
    """The placement agent's policy: the mean of its affinities."""

    def __init__(self, graph: Graph, process: Process, name: str = "das") -> None:
        self.name = name
        self._graph, self._process = graph, process

    def place(self, view: PoolView, order: Int32, *, strict: bool) -> tuple[Placement, ...]:
        """See ``ports.Placer``. A task that fits may stay pending if the agent prefers to wait."""
        if not len(order):
            return ()
        sight = EYE.look(view)
        sorter = np.argsort(view.pending)
        rows = sorter[np.searchsorted(view.pending, order, sorter=sorter)]
        chosen = rows if strict else with_room(sight, rows, len(rows))
        settling = Settling(sight)
        found: list[Placement] = []
        for begun in range(0, len(chosen), AT_ONCE):
            part = chosen[begun : begun + AT_ONCE]
            placed = settling.add(part, *self._affinities(sight, part), strict=strict)
            found += placed
            if settling.full or (strict and len(placed) < len(part)):
                break
        return tuple(found)

    def _affinities(self, sight: DasObservation, chosen: NDArray[np.integer]) -> tuple[Float64, Float64]:
        rows = np.concatenate([chosen, np.arange(sight.waiting, len(sight.rows))])
        inputs = {"task": sight.task[rows][None], "node": sight.node[None], "pair": sight.pair[rows][None]}
        mean, labels, likeness, patience = (output[0] for output in self._graph.run(**inputs))
        count = len(chosen)
        affinity = mean[:count].astype(np.float64)
        if self._process.walks and len(rows) > count:
            decay, noise = self._process.decay, self._process.noise
            vectors = walk(labels[count:], likeness[count:], sight.switch, decay)
            past = (sight.held[:, None, :] @ vectors)[:, 0]
            weights = posterior_weights(past, sight.felt, noise)
            affinity += walked_mean(labels[:count], likeness[:count], sight.switch, decay, weights)
        return affinity, patience[:count].astype(np.float64)


def das_ordering(folder: str) -> DasOrdering:
    """The ordering agent in a directory. Raises ``ArtifactMismatch``, ``MissingExtra``."""
    _, graphs = read_artifact(Path(folder))
    return DasOrdering(Graph(graphs[ORDERING], Path(folder) / ORDERING), f"das:{folder}")


def das_placer(folder: str) -> DasPlacer:
    """The placement agent in a directory. Raises ``ArtifactMismatch``, ``MissingExtra``."""
    manifest, graphs = read_artifact(Path(folder))
    return DasPlacer(Graph(graphs[PLACEMENT], Path(folder) / PLACEMENT), manifest.process, f"das:{folder}")

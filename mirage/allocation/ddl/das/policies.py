"""The trained agents as ordering policy and placement policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.ddl.das.artifact import ORDERING, PLACEMENT, Process, read_artifact
from mirage.allocation.ddl.das.choosing import Settling, with_room
from mirage.allocation.ddl.das.kernel import posterior_weights, walk, walked_mean
from mirage.allocation.ddl.das.sight import EYE, Sight
from mirage.allocation.graph import Graph

if TYPE_CHECKING:
    from mirage.domain.pool import Placement, PoolView
    from mirage.domain.task import TaskTable

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

    def _affinities(self, sight: Sight, chosen: NDArray[np.integer]) -> tuple[Float64, Float64]:
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

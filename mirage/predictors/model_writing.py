"""Writes artifacts: what a trainer has learned, in the form that a daemon can load."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirage.artifact import MANIFEST, digests_of, library_versions, refuse_existing, write_folder
from mirage.predictors.model_manifest import CURVES, MODEL, RANGES, ClusterMark, ModelManifest, TrainingMark
from mirage.predictors.model_ranges import ranges_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from mirage.features.table import Table
    from mirage.predictors.model_manifest import Answers


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a trainer brings."""

    plugin: str
    """As users name the predictor: ``random-forest``."""
    plugin_version: str
    model: bytes
    """ONNX: float32 (N, features) to float (N, ``answers.width``)."""
    answers: Answers
    seeds: tuple[int, ...]
    metrics: Mapping[str, float]
    """How it did on the handovers kept for validation."""
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What was measured in the course of the training, by name."""
    weight: NDArray[np.float64] | None = None
    """Shape (features,): how much of the model rests on each; ``None``: all that vary alike."""
    packages: tuple[str, ...] = ()
    """Further packages whose versions are written down."""


def write_artifact(folder: Path, learnt: Learnt, table: Table) -> Path:
    """Write an artifact to ``folder``, whole or not at all; returns it. ``table`` is what it was trained on.

    Raises ``ConfigError`` for a directory that is there already, ``ValueError`` for metrics that are not numbers.
    """
    refuse_existing(folder)
    if not all(np.isfinite(value) for value in learnt.metrics.values()):
        raise ValueError(f"metrics must be finite: {dict(learnt.metrics)}")
    contents = {
        MODEL: learnt.model,
        RANGES: ranges_of(table.features, learnt.weight).text().encode(),
        CURVES: (
            json.dumps({name: list(map(float, curve)) for name, curve in learnt.curves.items()}) + "\n"
        ).encode(),
    }
    contents[MANIFEST] = _manifest(learnt, table, contents).text().encode()
    return write_folder(folder, contents)


def _manifest(learnt: Learnt, table: Table, contents: Mapping[str, bytes]) -> ModelManifest:
    origin = table.origin
    return ModelManifest(
        plugin=learnt.plugin,
        plugin_version=learnt.plugin_version,
        schema=table.schema.name,
        schema_hash=table.schema.hash,
        cluster=ClusterMark(origin.cluster, origin.cluster_fingerprint, partition_sizes(table)),
        training=TrainingMark(
            trace=origin.trace,
            trace_fingerprint=origin.trace_fingerprint,
            first=int(table.episode_start.min()),
            last=int(table.episode_start.max()),
            known=int(table.start.max()),
            handovers=len(table),
        ),
        seeds=learnt.seeds,
        answers=learnt.answers,
        metrics={name: float(value) for name, value in learnt.metrics.items()},
        libraries=library_versions(*learnt.packages),
        files=digests_of(contents),
    )


def partition_sizes(table: Table) -> tuple[int, int] | None:
    """Return the smallest and largest node count of the partition, if the features have the successor's share."""
    if "successor_share" not in table.schema.names:
        return None
    share = table.features[:, :, table.schema.names.index("successor_share")]
    sizes = np.rint(table.nodes[:, None] / share)
    return int(sizes.min()), int(sizes.max())

"""The manifest of a trained model: its files, the meaning of its outputs, and the cluster of its training data."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mirage import __version__
from mirage.artifact import MANIFEST, manifest_as, manifest_text, read_files
from mirage.artifact import read_manifest as read_document
from mirage.documentreading import reader_of
from mirage.domain.decision import ActionScores, WaitForecast
from mirage.domain.errors import ArtifactMismatch
from mirage.domain.job import ABSENT
from mirage.predictors.members import PLUGIN, SHOWN

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.decision import Observation


def check_cluster(trained: ClusterMark, name: str) -> None:
    """Raise ``ArtifactMismatch`` for a model of another cluster than ``name``; empty: that is not known."""
    if name and trained.name != name:
        raise ArtifactMismatch(
            "cluster", f"the model was trained on {trained.name!r}, and this daemon's is {name!r}: train one here"
        )


def check_home(trained: ClusterMark, name: str, fingerprint: str) -> str:
    """What to say of a model of the cluster ``name``, which now has the ``fingerprint``; empty: nothing.

    A cluster whose configuration was changed since is the same one: the model rejects by itself what it has not
    seen. Raises ``ArtifactMismatch`` for a model of another cluster.
    """
    if trained.fingerprint == fingerprint:
        return ""
    if trained.name == name:
        return f"the configuration of the cluster {name!r} was changed since the model was trained: train it again"
    raise ArtifactMismatch(
        "cluster",
        f"the model was trained on {trained.name!r} (fingerprint {trained.fingerprint[:12]}), and this is "
        f"{name!r} ({fingerprint[:12]}): train one here",
    )


Float64 = NDArray[np.float64]

HOUR = 3_600

LEVELS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""At which a distribution is read."""

_RISE = 1e-9
"""Added from step to step where a distribution is flat, so that every level has one place."""


@dataclass(frozen=True, slots=True)
class WaitQuantiles:
    """Output shape (levels,): quantiles of the wait in hours if the successor is submitted now."""

    levels: tuple[float, ...]
    """Ascending, within 0 and 1."""
    kind: Literal["wait-quantiles"] = "wait-quantiles"

    @property
    def width(self) -> int:
        """Numbers for each observation."""
        return len(self.levels)

    def quantiles(self, output: Float64) -> Float64:
        """Shape (..., levels), hours, never negative nor descending.

        Quantiles learned one by one may cross; sorting them is the rearrangement of Chernozhukov, Fernandez-Val &
        Galichon (Econometrica 78, 2010), which is never worse.
        """
        return np.sort(np.maximum(output, 0.0), axis=-1)

    def prediction(self, output: Float64, observation: Observation) -> WaitForecast:
        """One observation's answer."""
        return _forecast(self.levels, self.quantiles(output), observation)


@dataclass(frozen=True, slots=True)
class WaitDistribution:
    """Output shape (hours,): the probability that the wait is at most ``hours``."""

    hours: tuple[float, ...]
    """Ascending, from 0."""
    levels: tuple[float, ...] = LEVELS
    kind: Literal["wait-distribution"] = "wait-distribution"

    @property
    def width(self) -> int:
        """Numbers for each observation."""
        return len(self.hours)

    def quantiles(self, output: Float64) -> Float64:
        """Shape (..., levels), hours: the inverse, linear between the hours known and constant outside them."""
        rising = np.maximum.accumulate(output, axis=-1) + _RISE * np.arange(self.width)
        rows = rising.reshape(-1, self.width)
        found = np.array([np.interp(self.levels, row, self.hours) for row in rows])
        return found.reshape(*output.shape[:-1], len(self.levels))

    def prediction(self, output: Float64, observation: Observation) -> WaitForecast:
        """One observation's answer."""
        return _forecast(self.levels, self.quantiles(output), observation)


@dataclass(frozen=True, slots=True)
class Scores:
    """Output shape (2,): how good it is to hold, and to submit, in that order; higher is better."""

    min_lead: float = 0.0
    """Hours before the predecessor's end from which the successor is submitted whatever the model says."""
    max_lead: float = field(default=1e6)
    """Hours before the predecessor's end until which it is not submitted whatever the model says."""
    kind: Literal["action-scores"] = "action-scores"

    @property
    def width(self) -> int:
        """Numbers for each observation."""
        return 2

    def prediction(self, output: Float64, observation: Observation) -> ActionScores:
        """One observation's answer, within the leads."""
        hold, submit = map(float, output)
        predecessor = observation.predecessor
        if predecessor is not None and predecessor.end != ABSENT:
            left = (predecessor.end - observation.time) / HOUR
            if left > self.max_lead:
                return ActionScores(submit=min(submit, hold - 1), hold=hold)
            if left < self.min_lead:
                return ActionScores(submit=max(submit, hold), hold=hold)
        return ActionScores(submit=submit, hold=hold)


Answers = WaitQuantiles | WaitDistribution | Scores


def answers_from(document: dict[str, Any]) -> Answers:
    """As a manifest has it. Raises ``ValueError``, ``TypeError`` or ``KeyError`` for what makes no sense."""
    numbers = {name: _ascending(name, document[name]) for name in ("levels", "hours") if name in document}
    filled: dict[str, Any] = document | numbers
    match document["kind"]:
        case "wait-quantiles":
            return WaitQuantiles(**filled)
        case "wait-distribution":
            return WaitDistribution(**filled)
        case "action-scores":
            return Scores(**filled)
    raise ValueError(f"answers of kind {document['kind']!r}: not known here")


def _ascending(name: str, values: list[float]) -> tuple[float, ...]:
    found = tuple(float(value) for value in values)
    top = 1.0 if name == "levels" else float("inf")
    rising = all(one < other for one, other in pairwise(found))
    if not (found and rising and found[0] >= 0 and found[-1] <= top):
        raise ValueError(f"{name} must ascend from 0: {found}")
    return found


def _forecast(levels: tuple[float, ...], hours: Float64, observation: Observation) -> WaitForecast:
    starts = observation.time + hours * HOUR
    return WaitForecast(levels, tuple(float(start) for start in starts))


FORMAT = 1
MODEL = "model.onnx"
RANGES = "ranges.json"
CURVES = "curves.json"


@dataclass(frozen=True, slots=True)
class ClusterMark:
    """The cluster whose handovers the model has learned from."""

    name: str
    fingerprint: str
    """SHA-256 (hex) of its configuration."""
    nodes: tuple[int, int] | None
    """Smallest and largest number of nodes of the partition; ``None`` if the features do not have it."""


@dataclass(frozen=True, slots=True)
class TrainingMark:
    """The handovers that the model has learned from. Times in seconds since the epoch, UTC."""

    trace: str
    trace_fingerprint: str
    first: int
    """The first handover's beginning."""
    last: int
    """Start of the last one."""
    known: int
    """The last start of a successor among them: nothing that came later is in the model."""
    handovers: int


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """All that is known of an artifact next to its files."""

    plugin: str
    plugin_version: str
    schema: str
    schema_hash: str
    cluster: ClusterMark
    training: TrainingMark
    seeds: tuple[int, ...]
    answers: Answers
    """What the model's output means."""
    metrics: dict[str, float]
    """How it did on the handovers kept for validation."""
    libraries: dict[str, str]
    """Versions of what it was made with."""
    files: dict[str, str]
    """SHA-256 (hex) of every other file of the artifact."""
    mirage: str = __version__
    format: int = FORMAT

    def text(self) -> str:
        """Return the manifest as JSON."""
        return manifest_text(asdict(self))


_MANIFEST = reader_of(ModelManifest)


def read_manifest(folder: Path) -> ModelManifest:
    """The manifest of an artifact. Raises ``ArtifactMismatch`` naming the file."""
    document = read_document(folder, FORMAT)
    try:
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}")
        answers = answers_from(document["answers"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        path = str(folder / MANIFEST)
        raise ArtifactMismatch(path, f"is no manifest ({error!r}): train the model again") from error
    manifest = manifest_as(_MANIFEST, document | {"answers": answers}, folder, "a predictor")
    if not re.fullmatch(PLUGIN, manifest.plugin):  # it names a directory of the model registry
        told = f"plugin: {manifest.plugin[:SHOWN]!r}: expected 1 to 40 of a-z, 0-9, '_' and '-'"
        raise ArtifactMismatch(str(folder / MANIFEST), told)
    return manifest


def verify_files(folder: Path, manifest: ModelManifest) -> dict[str, bytes]:
    """The content of every file that the manifest lists. Raises ``ArtifactMismatch`` for one that is not so."""
    contents = read_files(folder, manifest.files, manifest.files)
    for name in (MODEL, RANGES):
        if name not in contents:
            raise ArtifactMismatch(str(folder / MANIFEST), f"does not list {name}: train the model again")
    return contents

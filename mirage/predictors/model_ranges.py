"""Ranges of the training observations: a model rejects observations unlike them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.documentreading import parse_json
from mirage.domain.errors import ArtifactMismatch
from mirage.features.schema import schema, schema_names
from mirage.predictors.model_manifest import RANGES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirage.features.table import FeatureSchema
    from mirage.predictors.model_manifest import ModelManifest

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

STRETCH = 0.5
"""Accepted distance of a feature below or above its training range, as a fraction of that range..."""
SLACK = 0.02
"""...plus this fraction of its largest magnitude."""
UNUSUAL = 0.05
"""Largest total weight of features outside their widened ranges that a model accepts."""
DECISIVE = ("successor_nodes", "successor_limit", "successor_share")
"""Features of the request that must be within their ranges, whatever their weight."""

_QUANTILES = (0.01, 0.5, 0.99)


@dataclass(frozen=True, slots=True)
class FeatureRanges:
    """One entry for each feature, in the schema's order."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    q01: tuple[float, ...]
    q50: tuple[float, ...]
    q99: tuple[float, ...]
    weight: tuple[float, ...]
    """How much of the model rests on the feature; they sum to 1."""

    def text(self) -> str:
        """Return the ranges as JSON."""
        return json.dumps(asdict(self)) + "\n"


def ranges_of(features: Float32, weight: Float64 | None = None) -> FeatureRanges:
    """Ranges of ``features``, shape (..., F), and the weight (F,) of each.

    By default all that vary weigh the same, and those that never do nothing. Raises ``ValueError`` for weights
    that make no sense.
    """
    flat = features.reshape(-1, features.shape[-1])
    low, high = flat.min(axis=0), flat.max(axis=0)
    weights = np.asarray(weight if weight is not None else (high > low), dtype=np.float64)
    if weights.shape != low.shape or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("a weight from 0 is needed for each feature")
    # A thousand quantile-sorted columns of a hundred thousand rows take long, and describe no better.
    sample = flat[:: max(1, len(flat) // 20_000)]
    q01, q50, q99 = np.quantile(sample, _QUANTILES, axis=0)
    columns = (low, high, q01, q50, q99, weights / (weights.sum() or 1.0))
    return FeatureRanges(*(tuple(float(value) for value in column) for column in columns))


def ranges_from(content: bytes, count: int) -> FeatureRanges:
    """As an artifact has them. Raises ``ValueError`` or ``TypeError`` for what is not ``count`` of each."""
    document: dict[str, Any] = parse_json(content)
    found = FeatureRanges(**{name: tuple(float(value) for value in values) for name, values in document.items()})
    if any(len(values) != count for values in asdict(found).values()):
        raise ValueError(f"there are not {count} of each")
    if not all(np.isfinite(values).all() for values in asdict(found).values()) or min(found.weight) < 0:
        raise ValueError("a value is not finite, or a weight is below 0")
    return found


class RangeCheck:
    """Compares observations with those of the training."""

    def __init__(self, ranges: FeatureRanges, schema: FeatureSchema) -> None:
        low, high = np.array(ranges.low), np.array(ranges.high)
        slack = STRETCH * (high - low) + SLACK * np.maximum(np.abs(low), np.abs(high))
        self._low, self._high = low - slack, high + slack
        self._weight = np.array(ranges.weight)
        self._names = schema.names
        self._decisive = np.isin(np.array(self._names), DECISIVE)

    def doubt(self, vector: Float32) -> str:
        """Return why the model should reject this vector, shape (F,); empty if acceptable."""
        outside = (vector < self._low) | (vector > self._high)
        if not outside.any():
            return ""
        decisive = np.flatnonzero(outside & self._decisive)
        if len(decisive):
            return f"{self._told(int(decisive[0]), vector)}: the model was not trained for such jobs"
        share = float(self._weight[outside].sum())
        if share <= UNUSUAL:
            return ""
        heaviest = np.flatnonzero(outside)[np.argsort(-self._weight[outside], kind="stable")[:3]]
        told = "; ".join(self._told(int(place), vector) for place in heaviest)
        return f"the queue is unlike what the model was trained on: features of {share:.0%} of its weight, {told}"

    def _told(self, place: int, vector: Float32) -> str:
        low, high = self._low[place], self._high[place]
        return f"{self._names[place]} is {vector[place]:.4g}, not within {low:.4g} to {high:.4g}"


def known_ranges(contents: Mapping[str, bytes], known: FeatureSchema, folder: Path) -> FeatureRanges:
    """Those of an artifact's files. Raises ``ArtifactMismatch``."""
    try:
        return ranges_from(contents[RANGES], known.size)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactMismatch(str(folder / RANGES), f"cannot be used: {error}; train the model again") from error


def known_schema(manifest: ModelManifest, path: str) -> FeatureSchema:
    """The features that an artifact is for. Raises ``ArtifactMismatch`` where this version has others."""
    if manifest.schema not in schema_names():
        known = ", ".join(schema_names())
        raise ArtifactMismatch(path, f"is for features {manifest.schema!r}, known here are {known}: update mirage")
    found = schema(manifest.schema)
    if found.hash != manifest.schema_hash:
        told = f"{manifest.schema} of another version (hash {manifest.schema_hash[:12]}, here {found.hash[:12]})"
        raise ArtifactMismatch(path, f"is for features {told}: train the model again")
    return found

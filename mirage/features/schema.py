"""Feature schemas by name, and the one function that turns an observation into a vector: training and serving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import ConfigError
from mirage.features import normalised, paper
from mirage.features.layout import FeatureSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.decision import Observation

__all__ = ["FeatureSchema", "encode", "schema", "schema_names"]

Float32 = NDArray[np.float32]

_ENCODERS: dict[str, tuple[FeatureSchema, Callable[[Observation], Float32]]] = {
    paper.SCHEMA.name: (paper.SCHEMA, paper.encode),
    normalised.SCHEMA.name: (normalised.SCHEMA, normalised.encode),
}


def schema_names() -> tuple[str, ...]:
    """The names of the schemas there are."""
    return tuple(_ENCODERS)


def schema(name: str) -> FeatureSchema:
    """The schema of that name: ``paper-v1`` or ``v2``. Raises ``ConfigError`` listing the names there are."""
    if name not in _ENCODERS:
        raise ConfigError("feature schema", f"{name!r} is none of {', '.join(_ENCODERS)}")
    return _ENCODERS[name][0]


def encode(schema: FeatureSchema, observation: Observation) -> Float32:
    """The observation as a vector, shape (``schema.size``,): steps (oldest first) row by row, then statics.

    Raises ``ValueError`` naming the feature where the observation lacks something or a number is not finite, and
    for a schema that is not this version's.
    """
    entry = _ENCODERS.get(schema.name)
    if entry is None or entry[0] != schema:
        raise ValueError(f"feature schema {schema.name} version {schema.version} is not one that is made here")
    vector = entry[1](observation)
    if not np.isfinite(vector).all():
        place = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ValueError(f"{schema.name}: feature {schema.names[place]} is {vector[place]}")
    return vector

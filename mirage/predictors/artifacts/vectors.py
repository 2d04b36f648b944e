"""Observations as vectors, made once for all models that are asked about the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.features.schema import encode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mirage.domain.decision import Observation
    from mirage.features.layout import FeatureSchema

_last: list[tuple[Observation, FeatureSchema, NDArray[np.float32]]] = []
"""At most the last one: a cycle queries active and shadow predictors about the same observation in turn."""


def vector_of(schema: FeatureSchema, observation: Observation) -> NDArray[np.float32]:
    """As ``encode``, read-only. Any thread may ask: in a race the same is worked out twice."""
    for seen, known, vector in tuple(_last):
        if seen is observation and known == schema:
            return vector
    vector = encode(schema, observation)
    vector.flags.writeable = False
    _last[:] = [(observation, schema, vector)]
    return vector

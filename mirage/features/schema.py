"""Feature schemas by name, and the one function that turns an observation into a vector: training and serving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.features.layout import FeatureSchema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mirage.domain.decision import Observation

__all__ = ["FeatureSchema", "encode", "schema"]


def schema(name: str) -> FeatureSchema:
    """The schema of that name: ``paper-v1`` or ``v2``. Raises ``ConfigError`` listing the names there are."""
    raise NotImplementedError(name)


def encode(schema: FeatureSchema, observation: Observation) -> NDArray[np.float32]:
    """The observation as a vector, shape (``schema.size``,): steps (oldest first) row by row, then statics.

    Raises ``ValueError`` naming the feature where the observation lacks something or a number is not finite.
    """
    raise NotImplementedError(schema.name, observation.time)

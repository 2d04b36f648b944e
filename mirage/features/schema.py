"""Feature schemas by name, and the one function that turns an observation into a vector: training and serving.

Schema ``paper-v1`` is here: the state of the Mirage paper's published code, 144 snapshots of 42 numbers. Raw
units (limits in minutes, all else in seconds), no normalisation. What concerns the two links is that of now,
copied into every row. The paper's code decides nothing before 144 snapshots; here, where fewer are known, the
oldest row is repeated in front. The time that pending jobs have run is always 0, and so are a successor's wait
and elapsed time: they are among the paper's columns and stay for comparison. ``v2`` is in ``normalised``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import Wants
from mirage.domain.errors import ConfigError
from mirage.domain.job import ABSENT
from mirage.features import normalised
from mirage.features.summary import COLUMNS, percentiles
from mirage.features.table import FeatureSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.decision import Observation
    from mirage.domain.job import Job, JobRequest, Seconds

Float32 = NDArray[np.float32]

_QUEUE = (
    "pending_jobs",
    "pending_nodes",
    *percentiles("pending_limit"),
    *percentiles("pending_age"),
    *percentiles("pending_elapsed"),
    "running_jobs",
    "running_nodes",
    *percentiles("running_limit"),
    *percentiles("running_wait"),
    *percentiles("running_elapsed"),
)
_LINK = ("limit", "nodes", "wait", "elapsed")

PAPER_V1 = FeatureSchema(
    name="paper-v1",
    version=1,
    sequence=(
        *_QUEUE,
        *(f"predecessor_{what}" for what in _LINK),
        *(f"successor_{what}" for what in _LINK),
    ),
    steps=144,
    static=(),
    wants=Wants(window=True),
)

_KNOWN = [place for place, name in enumerate(_QUEUE) if name in COLUMNS]
"""The places of the columns that the window has; the others are 0."""
_SOURCE = [COLUMNS.index(_QUEUE[place]) for place in _KNOWN]
_SCALE = np.array([1 / 60 if "_limit_" in _QUEUE[place] else 1 for place in _KNOWN], dtype=np.float32)


def encode_paper(observation: Observation) -> Float32:
    """The vector of ``PAPER_V1``. Raises ``ValueError`` where there is no window.

    Without a predecessor its four numbers are 0.
    """
    window = observation.window
    if window is None or not len(window):
        raise ValueError("paper-v1: no snapshot of the queue is known yet (window)")
    rows = np.zeros((PAPER_V1.steps, len(PAPER_V1.sequence)), dtype=np.float32)
    recent = window.rows[-PAPER_V1.steps :]
    missing = PAPER_V1.steps - len(recent)
    rows[missing:, _KNOWN] = recent[:, _SOURCE] * _SCALE
    rows[:missing] = rows[missing]
    rows[:, len(_QUEUE) :] = (*_running(observation.predecessor, observation.time), *_asked(observation.successor))
    return rows.ravel()


def _running(job: Job | None, now: Seconds) -> tuple[float, float, float, float]:
    """Limit (minutes), nodes, wait and elapsed time (seconds) of the predecessor."""
    if job is None:
        return 0.0, 0.0, 0.0, 0.0
    if job.start == ABSENT:
        return job.limit / 60, job.nodes, max(0, now - job.submit), 0.0
    return job.limit / 60, job.nodes, job.start - job.submit, max(0, now - job.start)


def _asked(request: JobRequest) -> tuple[float, float, float, float]:
    return request.limit / 60, request.nodes, 0.0, 0.0


__all__ = ["FeatureSchema", "encode", "schema", "schema_names"]


_ENCODERS: dict[str, tuple[FeatureSchema, Callable[[Observation], Float32]]] = {
    PAPER_V1.name: (PAPER_V1, encode_paper),
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

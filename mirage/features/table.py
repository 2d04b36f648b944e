"""Counterfactual handovers with what was to be seen: what each submit time would have led to.

``FeatureSchema`` names the numbers of what was seen; by its hash a model and an encoder recognise each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.domain.objective import Outcome, objective

if TYPE_CHECKING:
    from mirage.domain.decision import Wants
    from mirage.domain.objective import Weights


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """A vector of ``steps * len(sequence) + len(static)`` float32: the steps first, oldest first, row by row."""

    name: str
    version: int
    """Raised whenever a number under the same name would come out differently."""
    sequence: tuple[str, ...]
    """Columns of every step."""
    steps: int
    static: tuple[str, ...]
    """Columns that stand once, after the steps."""
    wants: Wants
    """What an observation must bring."""

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.steps * len(self.sequence) + len(self.static)

    @property
    def names(self) -> tuple[str, ...]:
        """One for each number of the vector; ``idle[-3]`` is the column ``idle`` three steps before the last."""
        steps = range(1 - self.steps, 1)
        return (*(f"{column}[{step}]" for step in steps for column in self.sequence), *self.static)

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the canonical description: equal where vectors mean the same."""
        description = [self.name, self.version, self.steps, list(self.sequence), list(self.static)]
        return sha256(json.dumps(description, separators=(",", ":")).encode()).hexdigest()


Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a table comes from, for manifests and reports."""

    cluster: str
    """Name of the simulated cluster."""
    cluster_fingerprint: str
    """SHA-256 (hex) of its configuration."""
    trace: str
    trace_fingerprint: str
    """SHA-256 (hex) of the trace's jobs."""
    trace_end: int
    """The trace's last submission: later starts are in a queue that only empties."""
    first: int
    """First episode's start, seconds."""
    last: int
    """No episode starts after this."""
    every: int
    """Seconds between episodes."""
    grid: int
    """Seconds between submit times."""


@dataclass(frozen=True, slots=True)
class Table:
    """E handovers, each tried at G submit times from the predecessor's start to its end. Times in seconds."""

    schema: FeatureSchema
    origin: Origin
    features: Float32
    """Shape (E, G, F): the observation at each submit time, F = ``schema.size``."""
    submit: Int64
    """Shape (E, G), ascending: the grid; the last is the predecessor's end, at which submission is forced."""
    start: Int64
    """Shape (E, G): when the successor would start if submitted then."""
    end: Int64
    """Shape (E,): the predecessor's end."""
    episode_start: Int64
    """Shape (E,): when the predecessor was submitted."""
    nodes: Int64
    """Shape (E,): nodes of each of the two."""
    limit: Int64
    """Shape (E,): time limit of each of the two."""

    def __len__(self) -> int:
        return len(self.end)

    @property
    def x(self) -> Int64:
        """Shape (E, G): start of the successor less the end of the predecessor; positive is an interruption."""
        return self.start - self.end[:, None]

    @property
    def wait(self) -> Int64:
        """Shape (E, G): seconds from submission to start."""
        return self.start - self.submit

    def outcome(self, episode: int, index: int) -> Outcome:
        """The handover if the successor is submitted at that point of the grid."""
        return Outcome(int(self.end[episode]), int(self.start[episode, index]))

    def returns(self, weights: Weights) -> Float64:
        """Shape (E, G): the objective in hours of submitting at each point; 0 is perfect, less is worse."""
        # The objective is linear on either side: its value at a second more and a second less says it all.
        late, early = objective(Outcome(0, 1), weights), objective(Outcome(1, 0), weights)
        hours = self.x / 3_600
        return np.maximum(hours, 0) * late + np.maximum(-hours, 0) * early

    def returns_of(self, index: Int64, weights: Weights) -> Float64:
        """Shape (E,): the objective in hours of a policy that submits at these points, shape (E,)."""
        return np.take_along_axis(self.returns(weights), np.asarray(index)[:, None], axis=1)[:, 0]

    def best(self, weights: Weights) -> Int64:
        """Shape (E,): the point with the best objective, the earliest where several are: the oracle."""
        return np.asarray(np.argmax(self.returns(weights), axis=1), dtype=np.int64)

    def take(self, rows: NDArray[Any]) -> Table:
        """The chosen episodes (index array, mask), in that order."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{n: a[rows] for n, a in arrays.items() if isinstance(a, np.ndarray)})

    def between(self, first: int, until: int) -> Table:
        """Episodes that start at ``first`` or later and before ``until``.

        The last ones have outcomes after ``until``: for a split by time leave a gap of some days between spans.
        """
        return self.take((self.episode_start >= first) & (self.episode_start < until))

"""Results of a replay: one record per policy, episode and pair of links, and the queue over time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.outcome import Outcome

if TYPE_CHECKING:
    from mirage.domain.job import Seconds

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """One handover: a predecessor, its successor, and when the policy submitted the successor.

    Times are seconds as in the trace.
    """

    policy: str
    episode: int
    """Number of the episode in the replay, in order of ``episode_start``."""
    episode_start: Seconds
    """When the chain's first link was submitted."""
    pair: int
    """0 for links 1 and 2, 1 for links 2 and 3, ..."""
    predecessor_submit: Seconds
    predecessor_start: Seconds
    predecessor_end: Seconds
    successor_submit: Seconds
    successor_start: Seconds
    decision: str
    """The sentence with which the policy submitted the successor."""

    @property
    def outcome(self) -> Outcome:
        """The handover as the objective sees it."""
        return Outcome(self.predecessor_end, self.successor_start)

    @property
    def x(self) -> Seconds:
        """Signed gap: positive is an interruption, negative an overlap."""
        return self.outcome.x

    @property
    def interruption(self) -> Seconds:
        """Seconds without any link running."""
        return self.outcome.interruption

    @property
    def overlap(self) -> Seconds:
        """Seconds with both links running."""
        return self.outcome.overlap


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """The simulated queue over time, as columns of equal length; sampled at regular times."""

    time: Int64
    """Seconds, ascending."""
    pending_jobs: Int64
    pending_nodes: Int64
    """Sum of the nodes that pending jobs ask for."""
    busy_nodes: Int64
    total_nodes: int
    """Nodes of the cluster."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A whole replay: what was played, and every handover."""

    trace: str
    """Name of the trace as the user gave it."""
    cluster: str
    """Name of the cluster."""
    nodes: int
    """Nodes of each link."""
    limit: Seconds
    """Time limit of each link; links run to it."""
    policies: tuple[str, ...]
    """In the order the user named them."""
    outcomes: tuple[PairOutcome, ...]
    queue: QueueHistory
    rejected_jobs: int
    """Jobs of the trace that the simulated cluster rejected."""
    seed: int
    start: Seconds
    """First episode."""
    end: Seconds
    """No episode starts after this."""
    every: Seconds
    """Between episodes."""
    tick: Seconds
    """Between decisions."""
    links: int
    """Links of each chain."""
    overlap_price: float
    """Price of a second of overlap where a second of interruption costs 1, for the policies that need it."""
    notes: tuple[str, ...] = ()
    """Notes for the reader, in sentences (predictors that failed, episodes that did not finish)."""

    def to_json(self) -> dict[str, object]:
        """The whole record as values for ``json.dumps``: seconds throughout, x written out for each pair."""
        scalars = {name: getattr(self, name) for name in _SCALARS}
        return scalars | {
            "policies": list(self.policies),
            "notes": list(self.notes),
            "queue": _columns(self.queue),
            "outcomes": [asdict(o) | {"x": o.x} for o in self.outcomes],
        }


_SCALARS = (
    "trace",
    "cluster",
    "nodes",
    "limit",
    "rejected_jobs",
    "seed",
    "start",
    "end",
    "every",
    "tick",
    "links",
    "overlap_price",
)


def _columns(queue: QueueHistory) -> dict[str, object]:
    columns = ("time", "pending_jobs", "pending_nodes", "busy_nodes")
    return {name: getattr(queue, name).tolist() for name in columns} | {"total_nodes": queue.total_nodes}

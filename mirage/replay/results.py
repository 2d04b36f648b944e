"""Results of a replay: a record per policy, episode and pair of links; the queue over time; a rectangular panel.

The panel has every policy on the same pairs of links.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.objective import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

REACTIVE = "reactive"
"""The policy that submits the successor when the predecessor ends: the baseline of every comparison."""

ORACLE = "oracle"
"""The policy that knows the future: the floor."""

MEDIUM_FROM = 2 * 3_600
HEAVY_FROM = 12 * 3_600
"""Load classes by the reactive policy's interruption in seconds: low up to 2 h, heavy above 12 h (the bounds
that Mirage's authors use)."""


class LoadClass(StrEnum):
    """Load class of an episode: the reactive policy's interruption on the same episode."""

    LOW = "low"
    MEDIUM = "medium"
    HEAVY = "heavy"

    @classmethod
    def of(cls, interruption: float) -> LoadClass:
        """The class of an episode by the mean interruption of the reactive policy, in seconds per pair."""
        if interruption <= MEDIUM_FROM:
            return cls.LOW
        return cls.MEDIUM if interruption <= HEAVY_FROM else cls.HEAVY

    @property
    def bounds(self) -> str:
        """The class's range of reactive interruption, as text."""
        return {"low": "up to 2 h", "medium": "2 to 12 h", "heavy": "over 12 h"}[self.value]


@dataclass(frozen=True, slots=True)
class Panel:
    """Signed outcomes by policy and pair of links; pairs that some policy did not complete are left out."""

    policies: tuple[str, ...]
    starts: Ints
    """Start of each episode, ascending, seconds; shape (episodes,)."""
    episode: Ints
    """Index into ``starts`` of each pair's episode; shape (pairs,)."""
    episode_ids: Ints
    """The replay's own number of each episode; shape (episodes,)."""
    x: Ints
    """start(successor) - end(predecessor) in seconds; shape (policies, pairs)."""
    load: tuple[LoadClass, ...]
    """Class of each episode; empty where the reactive policy was not replayed."""
    dropped: int
    """Pairs left out because some policy has no outcome for them."""

    def row(self, policy: str) -> Ints:
        """Signed outcomes of one policy; shape (pairs,). ``ValueError`` for a policy not replayed."""
        return np.asarray(self.x[self.policies.index(policy)])

    def within(self, load: LoadClass | None) -> Mask:
        """Which pairs belong to a class (all for ``None``); shape (pairs,)."""
        if load is None:
            return np.ones(len(self.episode), dtype=np.bool_)
        member = np.array([c is load for c in self.load], dtype=np.bool_)
        return member[self.episode] if len(member) else np.zeros(len(self.episode), dtype=np.bool_)

    @property
    def classes(self) -> tuple[LoadClass, ...]:
        """The classes that occur, in order."""
        return tuple(c for c in LoadClass if c in self.load)


def build_panel(policies: Sequence[str], outcomes: Iterable[PairOutcome]) -> Panel:
    """Arrange outcomes by policy (in the order given) and by (episode start, pair)."""
    by_policy: dict[str, dict[tuple[int, int, int], int]] = {name: {} for name in policies}
    for outcome in outcomes:
        key = (outcome.episode_start, outcome.episode, outcome.pair)
        by_policy[outcome.policy][key] = outcome.x
    seen = set().union(*by_policy.values())
    keys = sorted(key for key in seen if all(key in rows for rows in by_policy.values()))
    episodes = sorted({key[:2] for key in keys})
    index = {episode: i for i, episode in enumerate(episodes)}
    episode = np.array([index[key[:2]] for key in keys], dtype=np.int64)
    x = np.array([[rows[key] for key in keys] for rows in by_policy.values()], dtype=np.int64)
    return Panel(
        policies=tuple(policies),
        starts=np.array([start for start, _ in episodes], dtype=np.int64),
        episode=episode,
        episode_ids=np.array([number for _, number in episodes], dtype=np.int64),
        x=x.reshape(len(by_policy), len(keys)),
        load=_classify(by_policy, keys, episodes),
        dropped=len(seen) - len(keys),
    )


def _classify(
    by_policy: dict[str, dict[tuple[int, int, int], int]],
    keys: list[tuple[int, int, int]],
    episodes: list[tuple[int, int]],
) -> tuple[LoadClass, ...]:
    """Each episode's class by the mean interruption of its pairs under the reactive policy."""
    if REACTIVE not in by_policy:
        return ()
    suffered: dict[tuple[int, int], list[int]] = {episode: [] for episode in episodes}
    for key in keys:
        suffered[key[:2]].append(max(0, by_policy[REACTIVE][key]))
    return tuple(LoadClass.of(sum(seconds) / len(seconds)) for seconds in suffered.values())

"""Replay outcomes as one rectangular panel: every policy on the same pairs of links."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirage.replay.outcome import PairOutcome

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

"""Trained agents as policies for requests: they score once per period, and a compiled matcher uses the scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.graph import Graph
from mirage.allocation.inference.kernel.scored import KINDS, SETTINGS, decide_scored
from mirage.allocation.inference.policies.looking import Desk
from mirage.allocation.inference.relmas.artifact import ACTOR, Matching, read_agent
from mirage.allocation.inference.relmas.sight import Eye, Sight
from mirage.allocation.inference.relmas.timing import CORE_WATTS
from mirage.domain.units import Dispatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.inference.kernel.look import Look
    from mirage.allocation.inference.scores import Scores
    from mirage.domain.request import Float64
    from mirage.domain.units import SystemView


def parameters_of(matching: Matching) -> Float64:
    """Settings in the form of ``kernel.scored``."""
    return np.array([getattr(matching, name) for name in SETTINGS])


class LearnedPolicy:
    """A ``ScoredPolicy`` with an actor. Without one every score is 0: the plain matcher."""

    def __init__(self, name: str, matching: Matching, actor: Graph | None, decision_seconds: float = 0.0) -> None:
        self.name, self.parameters = name, parameters_of(matching)
        self.period = np.inf if actor is None else matching.period
        self.decision_seconds, self.decision_joules = decision_seconds, decision_seconds * CORE_WATTS
        self._actor = actor
        self.begin()

    def begin(self) -> None:
        """See ``ports.RequestPolicy``."""
        self._kept: dict[int, Float64] = {}
        self._coming: Float64 | None = None
        self._desk = Desk()
        self._eye: Eye | None = None
        self._next = -np.inf

    def scores(self, view: SystemView) -> Scores:
        """See ``ScoredPolicy``."""
        return self._score(self._desk.look(view), view)

    def decide(self, view: SystemView) -> Dispatch:
        """See ``ports.RequestPolicy``. Scores again at the end of the period."""
        look = self._desk.look(view)
        kept, draft = self._recall(look, view), self._desk.draft(look)
        count = decide_scored(self.parameters, kept, look, view.now, len(view.request), draft)
        return Dispatch(draft.ready[:count].copy(), draft.unit[:count].copy())

    def _score(self, look: Look, view: SystemView) -> Scores:
        if self._eye is None:
            self._eye = Eye(look.first, look.dram_bytes)
        sight = self._eye.look(look, view.now, len(view.request), self.period)
        return sight.scores(act(self._actor, sight))

    def _recall(self, look: Look, view: SystemView) -> Float64:
        """State by slot; only that of requests still present is kept."""
        if self._coming is None:
            self._coming = np.zeros((len(look.first) - 1, KINDS + look.seconds.shape[1]))
        numbers, new = look.number.tolist(), self._coming[look.model]
        found = [self._kept.get(number, other) for number, other in zip(numbers, new, strict=True)]
        kept = np.array(found).reshape(new.shape)
        if view.now >= self._next and len(view.request):
            scores = self._score(look, view)
            kept[scores.rows], self._coming = scores.kept, scores.coming
            self._next = view.now + self.period
        self._kept = dict(zip(numbers, kept, strict=True))
        return kept


def act(actor: Graph | None, sight: Sight) -> Float64:
    """[N, KINDS + K] Scores of the actor."""
    if actor is None or not len(sight.order):
        return np.zeros((len(sight.order), KINDS + sight.pair.shape[1]))
    mask = np.ones((1, len(sight.order)), np.float32)
    inputs: dict[str, NDArray[np.float32]] = {"piece": sight.piece, "pair": sight.pair, "state": sight.state}
    (scores,) = actor.run(mask=mask, **{name: value[None] for name, value in inputs.items()})
    return np.asarray(scores[0], dtype=np.float64)


def relmas(folder: str) -> LearnedPolicy:
    """The RELMAS-style agent in a directory. Raises ``ArtifactMismatch``, ``MissingExtra``."""
    return _learned("relmas", folder)


def odra(folder: str) -> LearnedPolicy:
    """The ODRA-style agent in a directory. Raises ``ArtifactMismatch``, ``MissingExtra``."""
    return _learned("odra", folder)


def _learned(plugin: str, folder: str) -> LearnedPolicy:
    manifest, content = read_agent(Path(folder), plugin)
    actor = Graph(content, Path(folder) / ACTOR)
    return LearnedPolicy(f"{plugin}:{folder}", manifest.matching, actor, manifest.decision_seconds)


def listed() -> LearnedPolicy:
    """The matcher without an agent: the baseline that both agents learn to correct."""
    return LearnedPolicy("listed", Matching(), None)

"""One system in progress, period by period, next to a twin that is played by constants alone."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.kernel.scored import KINDS
from mirage.allocation.inference.policies.looking import look_at, read_costs
from mirage.allocation.inference.relmas.policies import parameters_of
from mirage.allocation.inference.relmas.sight import Eye
from mirage.allocation.inference.scores import Scores
from mirage.training.relmas.rewards import Tally, odra_reward, relmas_reward, tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.inference.outcome import Outcome
    from mirage.allocation.inference.relmas.artifact import Matching
    from mirage.allocation.inference.relmas.sight import Sight
    from mirage.allocation.inference.simulation import SimulatedSystem
    from mirage.domain.units import SystemView

    Float64 = NDArray[np.float64]

REWARDS = {"relmas": relmas_reward, "odra": odra_reward}


class Bout:
    """What is gained is told against the twin: what comes by chance comes to both.

    The twin starts again from the same state whenever ``pair`` is called; without it gains are not compared.
    """

    def __init__(
        self, system: SimulatedSystem, matching: Matching, plugin: str, constants: Float64 | None = None
    ) -> None:
        """``constants`` [M, KINDS + K]: what requests of each model are given where no agent plays; else zeros."""
        self.system, self._plugin, self._period = system, plugin, matching.period
        self._parameters = parameters_of(matching)
        self._costs = read_costs(system.costs)
        self._eye = Eye(self._costs.first, self._costs.dram_bytes)
        shape = len(system.costs.models), KINDS + len(system.costs.kinds)
        self._constants = np.zeros(shape) if constants is None else constants
        requests = system.requests
        span = float(requests.arrival[-1] - requests.arrival[0]) if len(requests) else 0.0
        self._coming = max(len(requests) / max(span, matching.period) * matching.period, 1e-9)
        self._twin: SimulatedSystem | None = None
        self._tick = float(requests.arrival[0]) if len(requests) else 0.0
        self.over = not system.follow(self._usual(system), self._parameters, self._tick)
        self._view = system.view()
        self._tally = self._twins_tally = self._count(system, self._view)

    def sight(self) -> Sight:
        """What the agents see now."""
        look = look_at(self._view, self._costs)
        return self._eye.look(look, self._view.now, len(self._view.request), self._period)

    def told(self, sight: Sight) -> Float64:
        """[N, KINDS + K] The constants of what is seen."""
        return self._constants[sight.model]

    def pair(self) -> None:
        """Let constants continue alone, from here, next to."""
        self._twin = self.system.copy()
        self._twins_tally = self._tally
        if not self.over:
            self._twin.follow(self._usual(self._twin), self._parameters, self._view.now)

    def step(self, scores: Scores) -> float:
        """Obey for a period; what it was worth, less what it was to the twin."""
        self._tick += self._period
        self.over = not self.system.follow(scores, self._parameters, self._tick)
        self._view = self.system.view()
        before, self._tally = self._tally, self._count(self.system, self._view)
        return self._worth(before, self._tally) - self._twins_worth()

    def copy(self) -> Bout:
        """An independent one in the same state, without a twin."""
        other = copy(self)
        other.system, other._twin, other._eye = self.system.copy(), None, self._eye.copy()
        other._view = other.system.view()
        return other

    def skip(self, seconds: float) -> None:
        """Let constants play alone for so long: not every lesson is to be of an empty system."""
        self._tick += seconds
        self.over = not self.system.follow(self._usual(self.system), self._parameters, self._tick)
        self._view = self.system.view()
        self._tally = self._count(self.system, self._view)

    def finish(self) -> None:
        """Let constants play alone to the end."""
        self.skip(np.inf)

    def outcome(self) -> Outcome:
        """So far."""
        return self.system.outcome()

    def _twins_worth(self) -> float:
        if self._twin is None:
            return 0.0
        self._twin.follow(Scores.of_coming(self._constants), self._parameters, self._tick)
        before, self._twins_tally = self._twins_tally, self._count(self._twin, self._twin.view())
        return self._worth(before, self._twins_tally)

    def _worth(self, before: Tally, after: Tally) -> float:
        return REWARDS[self._plugin](before, after, self._coming, self._period)

    def _count(self, system: SimulatedSystem, view: SystemView) -> Tally:
        return tally(view, system.requests, self._costs)

    def _usual(self, system: SimulatedSystem) -> Scores:
        """The constants for all that are there, and for all that come."""
        view = system.view()
        present = np.concatenate((view.request, view.running[view.running >= 0]))
        rows = np.arange(len(present), dtype=np.int32)
        return Scores(rows, self._constants[system.requests.model[present]], self._constants)

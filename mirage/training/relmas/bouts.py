"""One system, advanced period by period, next to a twin that runs by constants alone."""

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
    """Gains are measured against the twin, so that chance affects both.

    The twin restarts from the same state whenever ``pair`` is called; without it gains are not compared.
    """

    def __init__(
        self, system: SimulatedSystem, matching: Matching, plugin: str, constants: Float64 | None = None
    ) -> None:
        """``constants`` [M, KINDS + K]: scores of requests of each model without an agent; default zeros."""
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
        """The present observation of the agents."""
        look = look_at(self._view, self._costs)
        return self._eye.look(look, self._view.now, len(self._view.request), self._period)

    def told(self, sight: Sight) -> Float64:
        """[N, KINDS + K] The constants of the observed requests."""
        return self._constants[sight.model]

    def pair(self) -> None:
        """Create the twin, which continues by constants from this state."""
        self._twin = self.system.copy()
        self._twins_tally = self._tally
        if not self.over:
            self._twin.follow(self._usual(self._twin), self._parameters, self._view.now)

    def step(self, scores: Scores) -> float:
        """Apply scores for a period; returns its reward, less that of the twin."""
        self._tick += self._period
        self.over = not self.system.follow(scores, self._parameters, self._tick)
        self._view = self.system.view()
        before, self._tally = self._tally, self._count(self.system, self._view)
        return self._worth(before, self._tally) - self._twins_worth()

    def copy(self) -> Bout:
        """An independent copy in the same state, without a twin."""
        other = copy(self)
        other.system, other._twin, other._eye = self.system.copy(), None, self._eye.copy()
        other._view = other.system.view()
        return other

    def skip(self, seconds: float) -> None:
        """Run by constants alone for this time, so that not every transition is of an empty system."""
        self._tick += seconds
        self.over = not self.system.follow(self._usual(self.system), self._parameters, self._tick)
        self._view = self.system.view()
        self._tally = self._count(self.system, self._view)

    def finish(self) -> None:
        """Run by constants alone to the end."""
        self.skip(np.inf)

    def outcome(self) -> Outcome:
        """The figures so far."""
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
        """The constants for all present requests, and for those to come."""
        view = system.view()
        present = np.concatenate((view.request, view.running[view.running >= 0]))
        rows = np.arange(len(present), dtype=np.int32)
        return Scores(rows, self._constants[system.requests.model[present]], self._constants)

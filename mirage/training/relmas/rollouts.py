"""Runs of systems period by period, with an actor that may explore, next to a twin that runs by constants.

The papers' formulas of the reward of a period are not public; these are ours. Requests are counted by tenant: kept
(answered in time so far) and lost (answered late, or present and late even without any other request). Lost
requests stay lost, so both numbers only grow. n is the mean number of requests that arrive in a period.

- RELMAS-style, deadlines and bandwidth: new kept - new lost + 0.05 n (min(d, 1) - max(d - 1, 0)), where d is the
  bandwidth that is needed at the period's end, divided by that of the system: to use it is good, to need more is
  not;
- ODRA-style, latency and fairness: sum over tenants of (1 + 2 (share of all - share of the tenant)) (new kept -
  new lost), with the shares of kept among kept and lost so far, so that tenants with a lower share count for more;
  less 0.25 for every request that is present at the period's end and not lost, times the period by the time from
  its arrival to its deadline: so a request answered just in time costs a quarter of its gain.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from mirage.allocation.inference.compiled_policies import look_at, read_costs
from mirage.allocation.inference.kernel.scored import KINDS
from mirage.allocation.inference.relmas import RelmasEncoder, parameters_of
from mirage.allocation.inference.scores import RequestScores
from mirage.training.relmas.ddpg import LIMITS, Lesson, Shift, bounds, seen_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.inference.compiled_policies import Costs
    from mirage.allocation.inference.outcome import RequestRunResult
    from mirage.allocation.inference.relmas import Matching, RelmasObservation
    from mirage.allocation.inference.simulation import SimulatedSystem
    from mirage.domain.inference import RequestTable, SystemView
    from mirage.training.relmas.ddpg import Actor

Float64 = NDArray[np.float64]

BANDWIDTH, FAIRNESS, LATENCY = 0.05, 2.0, 0.25


@dataclass(frozen=True, slots=True)
class PeriodCounts:
    """Counts at one time."""

    kept: Float64
    """[T] Kept requests."""
    lost: Float64
    """[T] Lost requests."""
    drawn: float
    """Needed bandwidth, divided by that of the system."""
    hurry: float
    """1 / (deadline - arrival), 1/s, summed over present requests that are not lost."""

    def shares(self) -> Float64:
        """[T] Share of kept among kept and lost; 1 before the first."""
        return np.asarray((self.kept + 1.0) / (self.kept + self.lost + 1.0))


def tally(view: SystemView, requests: RequestTable, costs: Costs) -> PeriodCounts:
    """Count the requests of a view."""
    running = view.running[view.running >= 0]
    here = np.concatenate((view.request, running))
    left = costs.least[np.concatenate((view.piece, view.running_piece[view.running >= 0]))]
    # A running request counts as at the beginning of its present segment: that segment's end is not in doubt.
    left[len(view.request) :] -= _present(view, costs)
    ready_at = np.concatenate((np.full(len(view.request), view.now), view.free_at[view.running >= 0]))
    lost_here = requests.deadline[here] - ready_at < left - 1e-12
    lost = (view.tenant_ended - view.tenant_kept).astype(np.float64)
    np.add.at(lost, requests.tenant[here[lost_here]], 1.0)
    alive = here[~lost_here]
    allowed = requests.deadline[alive] - requests.arrival[alive]
    return PeriodCounts(
        view.tenant_kept.astype(np.float64),
        lost,
        float(view.drawn.sum() / view.system.bandwidth),
        float((1.0 / allowed).sum()),
    )


def _present(view: SystemView, costs: Costs) -> Float64:
    """[running] Least seconds of the running segments."""
    piece = view.running_piece[view.running >= 0]
    return np.nanmin(costs.seconds[piece], axis=1) if len(piece) else np.zeros(0)


def relmas_reward(before: PeriodCounts, after: PeriodCounts, coming: float, period: float) -> float:
    """The RELMAS-style reward; ``coming``: n, the mean number of arrivals per period."""
    del period
    gained = (after.kept - before.kept).sum() - (after.lost - before.lost).sum()
    return float(gained + BANDWIDTH * coming * (min(after.drawn, 1.0) - max(after.drawn - 1.0, 0.0)))


def odra_reward(before: PeriodCounts, after: PeriodCounts, coming: float, period: float) -> float:
    """The ODRA-style reward; ``coming`` is not used."""
    del coming
    kept, lost = before.kept.sum(), before.lost.sum()
    behind = (kept + 1.0) / (kept + lost + 1.0) - before.shares()
    gained = (after.kept - before.kept) - (after.lost - before.lost)
    return float((1.0 + FAIRNESS * behind) @ gained - LATENCY * period * after.hurry)


if TYPE_CHECKING:
    Floats = NDArray[np.float64]

REWARDS = {"relmas": relmas_reward, "odra": odra_reward}


class PeriodRollout:
    """Gains are measured against the twin, so that chance affects both.

    The twin restarts from the same state whenever ``pair`` is called; without it gains are not compared.
    """

    def __init__(
        self, system: SimulatedSystem, matching: Matching, plugin: str, constants: Floats | None = None
    ) -> None:
        """``constants`` [M, KINDS + K]: scores of requests of each model without an agent; default zeros."""
        self.system, self._plugin, self._period = system, plugin, matching.period
        self._parameters = parameters_of(matching)
        self._costs = read_costs(system.costs)
        self._eye = RelmasEncoder(self._costs.first, self._costs.dram_bytes)
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

    def sight(self) -> RelmasObservation:
        """The present observation of the agents."""
        look = look_at(self._view, self._costs)
        return self._eye.look(look, self._view.now, len(self._view.request), self._period)

    def told(self, sight: RelmasObservation) -> Floats:
        """[N, KINDS + K] The constants of the observed requests."""
        return self._constants[sight.model]

    def pair(self) -> None:
        """Create the twin, which continues by constants from this state."""
        self._twin = self.system.copy()
        self._twins_tally = self._tally
        if not self.over:
            self._twin.follow(self._usual(self._twin), self._parameters, self._view.now)

    def step(self, scores: RequestScores) -> float:
        """Apply scores for a period; returns its reward, less that of the twin."""
        self._tick += self._period
        self.over = not self.system.follow(scores, self._parameters, self._tick)
        self._view = self.system.view()
        before, self._tally = self._tally, self._count(self.system, self._view)
        return self._worth(before, self._tally) - self._twins_worth()

    def copy(self) -> PeriodRollout:
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

    def outcome(self) -> RequestRunResult:
        """The figures so far."""
        return self.system.outcome()

    def _twins_worth(self) -> float:
        if self._twin is None:
            return 0.0
        self._twin.follow(RequestScores.of_coming(self._constants), self._parameters, self._tick)
        before, self._twins_tally = self._twins_tally, self._count(self._twin, self._twin.view())
        return self._worth(before, self._twins_tally)

    def _worth(self, before: PeriodCounts, after: PeriodCounts) -> float:
        return REWARDS[self._plugin](before, after, self._coming, self._period)

    def _count(self, system: SimulatedSystem, view: SystemView) -> PeriodCounts:
        return tally(view, system.requests, self._costs)

    def _usual(self, system: SimulatedSystem) -> RequestScores:
        """The constants for all present requests, and for those to come."""
        view = system.view()
        present = np.concatenate((view.request, view.running[view.running >= 0]))
        rows = np.arange(len(present), dtype=np.int32)
        return RequestScores(rows, self._constants[system.requests.model[present]], self._constants)


if TYPE_CHECKING:
    Float32 = NDArray[np.float32]


def explore(
    bouts: Sequence[PeriodRollout],
    actor: Actor,
    stretch: int,
    discount: float,
    noise: tuple[float, float],
    rng: torch.Generator,
) -> list[Lesson]:
    """Run each system for some periods with a fixed disturbance of the weights; returns the transitions.

    ``noise``: standard deviations of the noise on weights, and on each number.
    """
    shift = drawn_shift(actor, len(bouts), noise[0], rng)
    for bout in bouts:
        bout.pair()
    steps: list[list[tuple[RelmasObservation, Float32, float]]] = [[] for _ in bouts]
    for _ in range(stretch):
        sights = [bout.sight() for bout in bouts]
        actions = disturbed(actor, sights, shift, noise[1], rng)
        for bout, sight, action, taken in zip(bouts, sights, actions, steps, strict=True):
            if not bout.over:
                taken.append((sight, action, bout.step(sight.scores(action))))
    return [lesson for bout, taken in zip(bouts, steps, strict=True) for lesson in _lessons(bout, taken, discount)]


def _lessons(
    bout: PeriodRollout, taken: list[tuple[RelmasObservation, Float32, float]], discount: float
) -> list[Lesson]:
    later = bout.sight()
    gain, left = 0.0, 0.0 if bout.over else 1.0
    found = []
    for sight, action, reward in reversed(taken):
        gain, left = reward + discount * gain, discount * left
        if len(sight.order):
            found.append(Lesson(sight, action, gain, left, later))
    return found


def drawn_shift(actor: Actor, count: int, spread: float, rng: torch.Generator) -> Shift:
    """Normal numbers for the last layers, scaled by the number of inputs."""
    width, pair = 1 + actor.request.in_features, 1 + actor.affinity.in_features
    request = torch.randn((count, len(LIMITS), width), generator=rng) * spread * (4.0 / width**0.5)
    return Shift(request, torch.randn((count, pair), generator=rng) * spread * (4.0 / pair**0.5))


def disturbed(
    actor: Actor, sights: Sequence[RelmasObservation], shift: Shift, spread: float, rng: torch.Generator
) -> list[Float32]:
    """[N, KINDS + K] for each: actions of an actor with these last layers, with noise on each number."""
    seen = seen_of(sights)
    with torch.no_grad():
        most = bounds(seen.pair.shape[2])
        told = actor.disturbed(seen, shift)
        told = told + spread * most * torch.randn(told.shape, generator=rng)
    whole = torch.maximum(torch.minimum(told, most), -most).numpy()
    return [action[: len(sight.order)] for action, sight in zip(whole, sights, strict=True)]


def play(bouts: Sequence[PeriodRollout], actor: Actor) -> None:
    """Run each to its end with the actor's best actions."""
    going = [bout for bout in bouts if not bout.over]
    while going:
        sights = [bout.sight() for bout in going]
        with torch.no_grad():
            whole = actor(*seen_of(sights)).numpy()
        for bout, sight, action in zip(going, sights, whole, strict=True):
            bout.step(sight.scores(action))
        going = [bout for bout in going if not bout.over]

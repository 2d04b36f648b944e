"""A whole training: set the matcher, draw workloads, run them, learn; the best actor is kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mirage.allocation.graph import Graph
from mirage.allocation.inference.kernel.scored import KINDS
from mirage.allocation.inference.relmas import LearnedPolicy, Matching, write_agent
from mirage.allocation.inference.scores import seconds_of
from mirage.allocation.inference.workload.scenario import find_scenario
from mirage.allocation.inference.workload.stage import PreparedScenario, set_stage
from mirage.domain.errors import ConfigError
from mirage.training.checkpoint import read_state, write_state
from mirage.training.relmas.constants import ByConstants, Evolution, examples_of, imitate, search, worths_of
from mirage.training.relmas.ddpg import DdpgLearner, DdpgSettings, RelmasShape, ReplayMemory, graph_of
from mirage.training.relmas.rollouts import REWARDS, PeriodRollout, explore, play

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from mirage.allocation.inference.outcome import SystemFigures

VALIDATION_FROM, TRAINING_FROM, SEEDS_EACH = 500_000, 1_000_000, 100_000
"""Seeds of workloads: those below the first are never trained on, so figures are measured there."""

TRIED = {"thrift": (8.0, 24.0), "margin": (0.1, 0.3), "density": (1.0,), "holding": (1.5,), "leaving": (0.8,)}
"""Settings tried besides the default when the matcher is set, one after the other."""
TRIED_ON = 12
"""Workloads of each scenario."""


@dataclass(frozen=True, slots=True)
class RelmasCourse:
    """Configuration of a training."""

    plugin: str
    """``relmas`` or ``odra``."""
    scenarios: tuple[str, ...]
    """Scenarios; workloads are drawn from each in turn."""
    seed: int = 0
    rounds: int = 30
    bouts: int = 12
    """Number of systems that run together."""
    stretch: int = 10
    """Periods between two batches of transitions."""
    lasting: int = 30
    """Rollouts after which a system is replaced by another."""
    batches: int = 4
    """Batches per round."""
    every: int = 15
    """Rounds between validations."""
    seconds: float = 5.0
    """Seconds of arrivals: fewer than in a scenario, for quick rounds."""
    validated: int = 4
    """Workloads of each scenario for choosing the best actor."""
    period: float = 0.05
    searched: int = 20
    """Generations of the search for constants in each scenario."""
    shown: int = 40
    """Workloads of each scenario for imitating constants."""
    imitated: int = 6000
    """Batches of the imitation."""
    noise: float = 0.05
    """Standard deviation of the noise on weights."""
    refined: int = 8
    """Rounds of evolution of the last layers, after those of DDPG, from their best actor."""
    generation: int = 50
    """Periods in such a round."""
    shape: RelmasShape = field(default_factory=RelmasShape)
    learning: DdpgSettings = field(default_factory=DdpgSettings)


def course_of(plugin: str, scenarios: tuple[str, ...], seed: int, rounds: int, period: float) -> RelmasCourse:
    """The default settings of each plugin."""
    # Smaller steps than a small problem needs: the matcher is good already, and most changes make it worse.
    likelihood = 0.5 if plugin == "odra" else 0.0
    learning = DdpgSettings(rate=2e-4, discount=0.98, charge=0.1, spread=0.01, likelihood=likelihood)
    return RelmasCourse(plugin, scenarios, seed, rounds, period=period, learning=learning)


@dataclass(frozen=True, slots=True)
class RelmasReport:
    """Result of one round."""

    number: int
    gained: float
    """Gain per period over the matcher alone, with exploration; in evolution, the difference of opposites."""
    validation: float | None
    """Gain over the matcher alone in the figure by which the best actor is chosen."""


class RelmasTraining:
    """A training in progress. Its state can be written to a file and resumed."""

    def __init__(self, course: RelmasCourse) -> None:
        """Raises ``ConfigError`` for a configuration without scenarios, or with invalid ones."""
        if not course.scenarios:
            raise ConfigError("SCENARIO", "name at least one")
        if course.plugin not in REWARDS:
            raise ConfigError(
                "--agent", f"unknown agent {course.plugin!r} (choose from {', '.join(sorted(REWARDS))})"
            )
        torch.manual_seed(course.seed)
        self.course = course
        self.stages = [_short(name, course.seconds) for name in course.scenarios]
        self.learner = DdpgLearner(course.shape, course.learning)
        self.replay = ReplayMemory(course.learning.replay)
        self.rng = torch.Generator().manual_seed(course.seed)
        self.drawn = np.random.default_rng(course.seed)
        self.done, self.begun, self.imitated = 0, 0, False
        self.matching = Matching(period=course.period)
        self.constants: dict[str, NDArray[np.float64]] = {}
        self.best, self.best_state = 0.0, self._copied()
        self.curve: list[float] = []
        self._bouts: list[PeriodRollout] = []
        self._ages: list[int] = []
        self._evolution: Evolution | None = None

    def set_matcher(self) -> Matching:
        """Try settings of the matcher one after the other on training workloads.

        A setting is kept if it is better in the mean of the scenarios and worse in none: what helps only one of
        them is left to the agent, which can distinguish them.
        """
        best = [self._worth_in(stage, self.matching) for stage in self.stages]
        for name, values in TRIED.items():
            for value in values:
                tried = replace(self.matching, **{name: value})
                worth = self._unless_worse(tried, best)
                if sum(worth) > sum(best):
                    best, self.matching = worth, tried
        return self.matching

    def _unless_worse(self, matching: Matching, best: list[float]) -> list[float]:
        """Figures of each scenario; stops with an empty result where a scenario gets worse."""
        worth: list[float] = []
        for stage, least in zip(self.stages, best, strict=True):
            worth.append(self._worth_in(stage, matching))
            if worth[-1] < least:
                return []
        return worth

    def find_constants(self) -> Iterator[str]:
        """Find constants for one scenario after the other; known ones are not searched again."""
        for stage, name in zip(self.stages, self.course.scenarios, strict=True):
            if name not in self.constants:
                self.constants[name] = self._constants_of(stage)
                yield name

    def _constants_of(self, stage: PreparedScenario) -> NDArray[np.float64]:
        used = np.flatnonzero(stage.mixes.sum(axis=0) > 0)
        first = TRAINING_FROM + self.course.seed * SEEDS_EACH + SEEDS_EACH // 2

        def worths(tried: Sequence[NDArray[np.float64]], seeds: range) -> list[float]:
            return worths_of([ByConstants(stage, self.matching, each) for each in tried], seeds, self._figure)

        return search(worths, used, _shape_of(stage), self.course.searched, first)

    def imitate(self) -> float:
        """Train the actor to imitate the constants of all scenarios; returns the remaining error."""
        bouts = [self._bout() for _ in range(self.course.shown) for _ in self.stages]
        examples = examples_of(bouts, int(self.course.seconds / self.course.period))
        missed = imitate(self.learner.actor, examples, self.course.imitated, self.drawn)
        self.learner.begin_from(self.learner.actor)
        self.imitated = True
        return missed

    def _worth_in(self, stage: PreparedScenario, matching: Matching) -> float:
        first = TRAINING_FROM + self.course.seed * SEEDS_EACH
        plain = ByConstants(stage, matching, np.zeros(_shape_of(stage)))
        return worths_of([plain], range(first, first + TRIED_ON), self._figure)[0]

    def rounds(self) -> Iterator[RelmasReport]:
        """Train round by round to the configured number."""
        base = self.validate(with_actor=False)
        if self.done == 0:
            yield RelmasReport(0, 0.0, self._keep(base))
        last = self.course.rounds + self.course.refined
        while self.done < last:
            gained = self._round() if self.done < self.course.rounds else self._refine()
            self.done += 1
            is_told = self.done in (self.course.rounds, last) or self.done % self.course.every == 0
            yield RelmasReport(self.done, gained, self._keep(base) if is_told else None)

    def validate(self, *, with_actor: bool = True) -> float:
        """Figure for choosing the best: mean satisfaction; for ODRA, mean of that and of the worst tenant's."""
        first = VALIDATION_FROM + self.course.seed * SEEDS_EACH // 100
        seeds = range(first, first + self.course.validated)
        bouts = [
            PeriodRollout(stage.simulated(seed), self.matching, self.course.plugin)
            for stage in self.stages
            for seed in seeds
        ]
        if with_actor:
            play(bouts, self.learner.actor)
        else:
            for bout in bouts:
                bout.finish()
        return self._figure([bout.outcome().figures for bout in bouts])

    def _figure(self, figures: Sequence[SystemFigures]) -> float:
        found = float(np.mean([each.all.satisfaction for each in figures]))
        if self.course.plugin == "odra":
            found = (found + float(np.mean([each.worst for each in figures]))) / 2
        return found

    def write(self, folder: Path) -> Path:
        """Write the best actor as an artifact. Raises ``ConfigError`` for an existing directory."""
        self.learner.actor.load_state_dict(self.best_state)
        taught = asdict(self.course) | {"curve": self.curve, "done": self.done}
        taught["constants"] = {name: found.tolist() for name, found in self.constants.items()}
        metrics = {"validation_gained": self.best}
        graph = graph_of(self.learner.actor)
        return write_agent(folder, self.course.plugin, graph, self.matching, taught, metrics, self._timed(graph))

    def _timed(self, graph: bytes) -> float:
        stage = self.stages[0]
        return seconds_of(LearnedPolicy("", self.matching, Graph(graph, Path())), stage.costs, stage.system)

    def save(self, path: Path) -> None:
        """Write the state atomically. Running systems and the replay buffer are drawn again later."""
        learner = self.learner
        state = {
            "parts": [part.state_dict() for part in _parts(learner)],
            "rng": self.rng.get_state(),
            "matching": asdict(self.matching),
            "learnt": learner.learnt,
            "done": self.done,
            "begun": self.begun,
            "imitated": self.imitated,
            "constants": {name: found.tolist() for name, found in self.constants.items()},
            "best": self.best,
            "best_state": self.best_state,
            "curve": self.curve,
        }
        write_state(path, self.course, state)

    def resume(self, path: Path) -> None:
        """Continue from a state. Raises ``ConfigError`` if its configuration differs, or it cannot be read."""
        state = read_state(path, self.course)
        for part, kept in zip(_parts(self.learner), state["parts"], strict=True):
            part.load_state_dict(kept)
        self.rng.set_state(state["rng"])
        self.matching, self.learner.learnt = Matching(**state["matching"]), state["learnt"]
        self.done, self.begun, self.imitated = state["done"], state["begun"], state["imitated"]
        self.drawn = np.random.default_rng([self.course.seed, self.done])
        self.constants = {name: np.array(found) for name, found in state["constants"].items()}
        self.best, self.best_state, self.curve = state["best"], state["best_state"], state["curve"]

    def _round(self) -> float:
        course, learning = self.course, self.course.learning
        self._replace_bouts()
        noise = course.noise, learning.spread
        lessons = explore(self._bouts, self.learner.actor, course.stretch, learning.discount, noise, self.rng)
        for lesson in lessons:
            self.replay.add(lesson)
        if len(self.replay) >= learning.batch:
            for _ in range(course.batches):
                self.learner.learn(self.replay.draw(learning.batch, self.drawn))
        return float(np.mean([lesson.gain for lesson in lessons])) if lessons else 0.0

    def _refine(self) -> float:
        """Run a round of evolution."""
        if self._evolution is None:
            self.learner.actor.load_state_dict(self.best_state)
            self._evolution = Evolution(self.learner.actor, self.course.noise, self.course.learning.rate * 10)
            self._bouts = []
        self._replace_bouts()
        return self._evolution.improve(self._bouts, self.course.generation, self.rng)

    def _replace_bouts(self) -> None:
        """Replace systems that are over, or old; at first not all together."""
        course = self.course
        if not self._bouts:
            self._bouts = [self._bout() for _ in range(course.bouts)]
            self._ages = [row * course.lasting // course.bouts for row in range(course.bouts)]
        for row, bout in enumerate(self._bouts):
            self._ages[row] += 1
            if bout.over or self._ages[row] > course.lasting:
                self._bouts[row], self._ages[row] = self._bout(), 0

    def _bout(self) -> PeriodRollout:
        number = self.begun % len(self.stages)
        stage = self.stages[number]
        seed = TRAINING_FROM + self.course.seed * SEEDS_EACH + self.begun
        self.begun += 1
        constants = self.constants.get(self.course.scenarios[number])
        bout = PeriodRollout(stage.simulated(seed), self.matching, self.course.plugin, constants)
        bout.skip(float(self.drawn.uniform(0.0, 0.7)) * self.course.seconds)
        return bout

    def _keep(self, base: float) -> float:
        """Validate, and keep the actor if it is the best so far."""
        gained = self.validate() - base
        self.curve.append(gained)
        if gained > self.best:
            self.best, self.best_state = gained, self._copied()
        return gained

    def _copied(self) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in self.learner.actor.state_dict().items()}


def _parts(learner: DdpgLearner) -> tuple[Any, ...]:
    return (
        learner.actor,
        learner.anchor,
        learner.critics,
        learner.slow_actor,
        learner.slow_critics,
        learner.acting,
        learner.judging,
    )


def _shape_of(stage: PreparedScenario) -> tuple[int, int]:
    """Scores of each model."""
    return len(stage.costs.models), KINDS + len(stage.costs.kinds)


def _short(name: str, seconds: float) -> PreparedScenario:
    """A scenario of at most this number of seconds, prepared for many runs."""
    scenario = find_scenario(name)
    return set_stage(replace(scenario, duration=min(scenario.duration, seconds)))

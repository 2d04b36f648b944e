"""A whole training: the matcher is set, workloads are drawn, played and learnt from; the best actor is kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mirage.allocation.graph import Graph
from mirage.allocation.inference.relmas.artifact import Matching, write_agent
from mirage.allocation.inference.relmas.policies import LearnedPolicy
from mirage.allocation.inference.relmas.timing import seconds_of
from mirage.allocation.inference.workload.scenariofile import find_scenario
from mirage.allocation.inference.workload.stage import Stage, set_stage
from mirage.domain.errors import ConfigError
from mirage.training.relmas.bouts import REWARDS, Bout
from mirage.training.relmas.evolving import Evolution
from mirage.training.relmas.exploring import explore, play
from mirage.training.relmas.export import graph_of
from mirage.training.relmas.learning import Learner, Learning, Replay
from mirage.training.relmas.networks import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.allocation.inference.outcome import SystemFigures

VALIDATION_FROM, TRAINING_FROM, SEEDS_EACH = 500_000, 1_000_000, 100_000
"""Seeds of workloads: below the first nothing is ever learnt from, so figures are taken there."""

TRIED = {"density": (0.0, 0.5, 2.0, 4.0), "crowding": (0.25, 1.0), "holding": (0.0, 0.5, 1.5, 2.5)}
"""What is tried beside the default when the matcher is set, one after the other."""


@dataclass(frozen=True, slots=True)
class Course:
    """What is taught."""

    plugin: str
    """``relmas`` or ``odra``."""
    scenarios: tuple[str, ...]
    """Workloads are drawn from each in turn."""
    seed: int = 0
    rounds: int = 80
    bouts: int = 12
    """Systems at once."""
    stretch: int = 10
    """Periods between two batches of lessons."""
    lasting: int = 30
    """Stretches after which a system is replaced by another."""
    batches: int = 4
    """Learnt from in a round."""
    every: int = 20
    """Rounds between validations."""
    seconds: float = 2.0
    """In which requests come: shorter than a scenario's, for quick rounds."""
    validated: int = 2
    """Workloads of each scenario on which the best actor is chosen."""
    period: float = 0.01
    noise: float = 0.05
    """Of weights."""
    refined: int = 40
    """Rounds of evolution of the last layers, after those of DDPG, from the best actor of these."""
    generation: int = 50
    """Periods in such a round."""
    shape: Shape = field(default_factory=Shape)
    learning: Learning = field(default_factory=Learning)


def course_of(plugin: str, scenarios: tuple[str, ...], seed: int, rounds: int, period: float) -> Course:
    """The usual one of each plugin."""
    # Gentler than a small problem needs: the matcher is good already, and most that is tried makes it worse.
    likelihood = 0.5 if plugin == "odra" else 0.0
    learning = Learning(rate=2e-4, discount=0.98, charge=0.1, spread=0.01, likelihood=likelihood)
    return Course(plugin, scenarios, seed, rounds, period=period, learning=learning)


@dataclass(frozen=True, slots=True)
class Report:
    """One round."""

    number: int
    gained: float
    """In a period, over the matcher alone, while it explores; in evolution, how much opposites differ."""
    validation: float | None
    """What is gained in the figure by which the best is chosen, over the matcher alone."""


class Training:
    """A course under way. Its state can be kept in a file, and be gone on from."""

    def __init__(self, course: Course) -> None:
        """Raises ``ConfigError`` for a course without scenarios, or what these have wrong."""
        if not course.scenarios:
            raise ConfigError("scenarios", "name at least one")
        if course.plugin not in REWARDS:
            raise ConfigError("agent", f"{course.plugin!r} is none of {', '.join(sorted(REWARDS))}")
        torch.manual_seed(course.seed)
        self.course = course
        self.stages = [_short(name, course.seconds) for name in course.scenarios]
        self.learner = Learner(course.shape, course.learning)
        self.replay = Replay(course.learning.replay)
        self.rng = torch.Generator().manual_seed(course.seed)
        self.drawn = np.random.default_rng(course.seed)
        self.done, self.begun = 0, 0
        self.matching = Matching(period=course.period)
        self.best, self.best_state = 0.0, self._copied()
        self.curve: list[float] = []
        self._bouts: list[Bout] = []
        self._ages: list[int] = []
        self._evolution: Evolution | None = None

    def set_matcher(self) -> Matching:
        """Try settings of the matcher one after the other on workloads for training; keep those that are best."""
        best = self._worth_of(self.matching)
        for name, values in TRIED.items():
            for value in values:
                tried = replace(self.matching, **{name: value})
                worth = self._worth_of(tried)
                if worth > best:
                    best, self.matching = worth, tried
        return self.matching

    def _worth_of(self, matching: Matching) -> float:
        first = TRAINING_FROM + self.course.seed * SEEDS_EACH
        policy = LearnedPolicy("", matching, None)
        outcomes = [stage.simulated(first + row).play(policy) for stage in self.stages for row in range(2)]
        return self._figure([outcome.figures for outcome in outcomes])

    def rounds(self) -> Iterator[Report]:
        """Learn round by round to the course's end."""
        base = self.validate(with_actor=False)
        last = self.course.rounds + self.course.refined
        while self.done < last:
            gained = self._round() if self.done < self.course.rounds else self._refine()
            self.done += 1
            is_told = self.done in (self.course.rounds, last) or self.done % self.course.every == 0
            yield Report(self.done, gained, self._keep(base) if is_told else None)

    def validate(self, *, with_actor: bool = True) -> float:
        """By which the best is chosen: mean satisfaction; for ODRA's, mean of that and of the worst tenant's."""
        first = VALIDATION_FROM + self.course.seed * SEEDS_EACH // 100
        seeds = range(first, first + self.course.validated)
        bouts = [
            Bout(stage.simulated(seed), self.matching, self.course.plugin)
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
        """Keep the best actor as an artifact. Raises ``ConfigError`` for a folder that is there already."""
        self.learner.actor.load_state_dict(self.best_state)
        taught = asdict(self.course) | {"curve": self.curve, "done": self.done}
        metrics = {"validation_gained": self.best}
        graph = graph_of(self.learner.actor)
        return write_agent(folder, self.course.plugin, graph, self.matching, taught, metrics, self._timed(graph))

    def _timed(self, graph: bytes) -> float:
        stage = self.stages[0]
        return seconds_of(LearnedPolicy("", self.matching, Graph(graph, Path())), stage.costs, stage.system)

    def save(self, path: Path) -> None:
        """Write the state, whole or not at all. What was being played and replayed is drawn anew afterwards."""
        learner = self.learner
        state = {
            "course": repr(replace(self.course, rounds=0)),
            "parts": [part.state_dict() for part in _parts(learner)],
            "rng": self.rng.get_state(),
            "matching": asdict(self.matching),
            "learnt": learner.learnt,
            "done": self.done,
            "begun": self.begun,
            "best": self.best,
            "best_state": self.best_state,
            "curve": self.curve,
        }
        new = path.with_name(f".{path.name}.new")
        torch.save(state, new)
        new.replace(path)

    def resume(self, path: Path) -> None:
        """Go on from a state. Raises ``ConfigError`` where it is of another course, or cannot be read."""
        try:
            state: dict[str, Any] = torch.load(path, weights_only=True)
        except Exception as error:  # torch's own kinds are many
            raise ConfigError(str(path), f"is no state of a training: {error}") from error
        if state.get("course") != repr(replace(self.course, rounds=0)):
            raise ConfigError(str(path), "is the state of another course: name another file or delete it")
        for part, kept in zip(_parts(self.learner), state["parts"], strict=True):
            part.load_state_dict(kept)
        self.rng.set_state(state["rng"])
        self.matching, self.learner.learnt = Matching(**state["matching"]), state["learnt"]
        self.done, self.begun = state["done"], state["begun"]
        self.drawn = np.random.default_rng([self.course.seed, self.done])
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
        """A round of evolution."""
        if self._evolution is None:
            self.learner.actor.load_state_dict(self.best_state)
            self._evolution = Evolution(self.learner.actor, self.course.noise, self.course.learning.rate * 10)
            self._bouts = []
        self._replace_bouts()
        return self._evolution.improve(self._bouts, self.course.generation, self.rng)

    def _replace_bouts(self) -> None:
        """Those that are over, and those that have lasted: at first not all at once."""
        course = self.course
        if not self._bouts:
            self._bouts = [self._bout() for _ in range(course.bouts)]
            self._ages = [row * course.lasting // course.bouts for row in range(course.bouts)]
        for row, bout in enumerate(self._bouts):
            self._ages[row] += 1
            if bout.over or self._ages[row] > course.lasting:
                self._bouts[row], self._ages[row] = self._bout(), 0

    def _bout(self) -> Bout:
        stage = self.stages[self.begun % len(self.stages)]
        seed = TRAINING_FROM + self.course.seed * SEEDS_EACH + self.begun
        self.begun += 1
        bout = Bout(stage.simulated(seed), self.matching, self.course.plugin)
        bout.skip(float(self.drawn.uniform(0.0, 0.7)) * self.course.seconds)
        return bout

    def _keep(self, base: float) -> float:
        """Validate, and remember the actor where it is the best so far."""
        gained = self.validate() - base
        self.curve.append(gained)
        if gained > self.best:
            self.best, self.best_state = gained, self._copied()
        return gained

    def _copied(self) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in self.learner.actor.state_dict().items()}


def _parts(learner: Learner) -> tuple[Any, ...]:
    return (
        learner.actor,
        learner.critics,
        learner.slow_actor,
        learner.slow_critics,
        learner.acting,
        learner.judging,
    )


def _short(name: str, seconds: float) -> Stage:
    """A scenario, of no more than so many seconds, set for many runs."""
    scenario = find_scenario(name)
    return set_stage(replace(scenario, duration=min(scenario.duration, seconds)))

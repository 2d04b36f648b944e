"""A whole training of the DAS agents: draw sets of tasks, run them, learn; the best agents are kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from mirage.allocation.ddl.das.artifact import write_artifact
from mirage.allocation.ddl.formats.readers import TaskFormat, TaskSource, read_source
from mirage.allocation.ddl.simulation import Rules, SimulatedPool
from mirage.domain.errors import ConfigError
from mirage.training.coursestate import read_state, write_state
from mirage.training.das.agents import Agents
from mirage.training.das.export import graphs_of, process_of
from mirage.training.das.learning import Learner, Learning
from mirage.training.das.networks import Shape
from mirage.training.das.rollouts import play

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

VALIDATION_FROM, TRAINING_FROM, SEEDS_EACH = 500_000, 1_000_000, 100_000
"""First training seed of sets of tasks; lower seeds are never trained on, so comparisons use those."""


@dataclass(frozen=True, slots=True)
class Course:
    """Configuration of a training."""

    mixes: tuple[str, ...]
    """Mix files; sets are drawn from each in turn."""
    pool: str
    speeds: str
    seed: int = 0
    rounds: int = 60
    sets: int = 6
    """Sets of tasks per round."""
    copies: int = 8
    """Number of runs of each set."""
    tasks: int = 60
    """Tasks per set: fewer than in a comparison, for quick rounds; the agents accept any number."""
    every: int = 5
    """Rounds between validations."""
    validated: int = 12
    """Validation sets of each mix, by which the best agents are chosen."""
    shape: Shape = field(default_factory=Shape)
    learning: Learning = field(default_factory=Learning)

    def sources(self) -> tuple[TaskSource, ...]:
        """The sources of the sets, one per mix."""
        return tuple(TaskSource(mix, TaskFormat.MIX, self.pool, self.speeds) for mix in self.mixes)


@dataclass(frozen=True, slots=True)
class Report:
    """Result of one round."""

    number: int
    measured: dict[str, float]
    validation: float | None
    """Mean JCT, divided by that of the untrained agents, mean over the mixes."""


class Training:
    """A training in progress. Its state can be written to a file and resumed."""

    def __init__(self, course: Course) -> None:
        """Raises as ``read_source`` does, ``ConfigError`` for a configuration without mixes."""
        if not course.mixes:
            raise ConfigError("MIX", "name at least one file")
        torch.manual_seed(course.seed)
        self.course = course
        self.agents = Agents(course.shape, _pool_switch(course))
        self.learner = Learner(self.agents, course.learning)
        self.rng = torch.Generator().manual_seed(course.seed)
        self.done = 0
        self.base = self.validate()
        self.best, self.best_state = 1.0, _copied(self.agents)
        self.curve: list[float] = []

    def rounds(self) -> Iterator[Report]:
        """Train round by round to the configured number."""
        while self.done < self.course.rounds:
            measured = self._round()
            self.done += 1
            last = self.done == self.course.rounds
            yield Report(self.done, measured, self._keep() if last or self.done % self.course.every == 0 else None)

    def validate(self) -> NDArray[np.float64]:
        """Mean JCT and mean fee of a task on the validation sets, by mix: (mixes, 2)."""
        found = []
        for source in self.course.sources():
            pools = [_drawn(source, VALIDATION_FROM + number) for number in range(self.course.validated)]
            figures = [episode.outcome.figures for episode in play(pools, self.agents, None)]
            found.append((np.mean([f.mean_jct for f in figures]), np.mean([f.fee / f.tasks for f in figures])))
        return np.array(found)

    def write(self, folder: Path) -> Path:
        """Write the best agents as an artifact. Raises ``ConfigError`` for an existing directory."""
        self.agents.load_state_dict(self.best_state)
        after = self.validate()
        metrics = {"validation_jct_by_untrained": self.best}
        for number in range(len(self.course.mixes)):
            metrics |= {f"jct_{number}": float(after[number, 0]), f"fee_{number}": float(after[number, 1])}
        taught = asdict(self.course) | {"curve": self.curve, "done": self.done}
        return write_artifact(folder, graphs_of(self.agents), process_of(self.agents), taught, metrics)

    def save(self, path: Path) -> None:
        """Write the state, completely or not at all."""
        state = {
            "agents": self.agents.state_dict(),
            "actors": self.learner.actors.state_dict(),
            "critics": self.learner.critics.state_dict(),
            "rng": self.rng.get_state(),
            "done": self.done,
            "best": self.best,
            "best_state": self.best_state,
            "curve": self.curve,
        }
        write_state(path, self.course, state)

    def resume(self, path: Path) -> None:
        """Continue from a state. Raises ``ConfigError`` if its configuration differs, or it cannot be read."""
        state = read_state(path, self.course)
        self.agents.load_state_dict(state["agents"])
        self.learner.actors.load_state_dict(state["actors"])
        self.learner.critics.load_state_dict(state["critics"])
        self.rng.set_state(state["rng"])
        self.done, self.best, self.best_state = state["done"], state["best"], state["best_state"]
        self.curve = state["curve"]

    def _round(self) -> dict[str, float]:
        course = self.course
        first = TRAINING_FROM + course.seed * SEEDS_EACH + self.done * course.sets
        sources = course.sources()
        pools = []
        for number in range(first, first + course.sets):
            pool = _drawn(sources[number % len(sources)], number, course.tasks)
            pools += [pool, *(pool.copy() for _ in range(course.copies - 1))]
        episodes = play(pools, self.agents, self.rng)
        groups = [episodes[begun : begun + course.copies] for begun in range(0, len(episodes), course.copies)]
        jct = float(np.mean([episode.outcome.figures.mean_jct for episode in episodes]))
        return self.learner.learn(groups, self.rng, self.done) | {"jct": jct}

    def _keep(self) -> float:
        """Validate, and keep the agents if they are the best so far."""
        ratio = float((self.validate()[:, 0] / self.base[:, 0]).mean())
        self.curve.append(ratio)
        if ratio < self.best:
            self.best, self.best_state = ratio, _copied(self.agents)
        return ratio


def _copied(agents: Agents) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in agents.state_dict().items()}


def _pool_switch(course: Course) -> NDArray[np.int32]:
    trace, _ = read_source(course.sources()[0], VALIDATION_FROM)
    return trace.pool.switch


def _drawn(source: TaskSource, seed: int, tasks: int | None = None) -> SimulatedPool:
    """The pool of one set, or of its first ``tasks``."""
    trace, speeds = read_source(source, seed)
    if tasks is not None and tasks < len(trace.tasks):
        rows = np.arange(tasks)
        kept = trace.tasks.take(rows)
        return SimulatedPool(kept, trace.pool, replace(speeds, row=speeds.row[:tasks]), Rules())
    return SimulatedPool(trace.tasks, trace.pool, speeds, Rules())


def shape_of(without: Sequence[str]) -> Shape:
    """The agents without ``communication`` or ``walks``. Raises ``ConfigError`` for other names."""
    unknown = set(without) - {"communication", "walks"}
    if unknown:
        raise ConfigError("--without", f"unknown: {', '.join(sorted(unknown))} (choose from communication, walks)")
    return Shape(communicates="communication" not in without, walks="walks" not in without)

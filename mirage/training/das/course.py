"""A whole training of the DAS agents: draw sets of tasks, run them, learn; the best agents are kept.

The method is MAPPO: both agents learn from their joint actions, judged by one critic (Yu et al., NeurIPS 2022).
The paper's critic is a Q of both agents' actions, trained by temporal differences. Ours is a V of the whole state,
as in MAPPO, and lambda-returns are its temporal differences: with lists of any length and continuous actions of
both agents a Q would have to learn the simulator as well. Scores are independent given the observation, so each
task's score is clipped separately: the ratio of a hundred tasks' joint densities is never near 1.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mirage.allocation.ddl.das.policies import write_artifact
from mirage.allocation.ddl.formats.readers import TaskFormat, TaskSource, read_source
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool
from mirage.domain.errors import ConfigError
from mirage.training.checkpoint import read_state, write_state
from mirage.training.das.agents import Agents, PlacementInput, asked_of, graphs_of, process_of, waiting_of
from mirage.training.das.networks import DasShape
from mirage.training.das.rollouts import advantages, group_features, play, rewards

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from mirage.training.das.networks import OrderingInput
    from mirage.training.das.rollouts import PoolEpisode, Step


@dataclass(frozen=True, slots=True)
class MappoSettings:
    """Hyperparameters of the training."""

    rate: float = 3e-3
    critic_rate: float = 2e-3
    clip: float = 0.2
    entropy: float = 1e-3
    """The paper's lambda."""
    smoothing: float = 0.95
    epochs: int = 2
    share: float = 0.5
    """Share of the steps, drawn again, that an epoch uses: neighbouring steps carry similar information."""
    batch: int = 512
    norm: float = 1.0
    """Largest norm of the gradients."""
    halved: float = 20.0
    """Rounds in which the learning rates halve, independent of the number of rounds."""
    least: float = 0.05
    """Lower bound of the learning rates, as a part of the initial ones."""

    def part(self, done: int) -> float:
        """Factor of the learning rates after this number of rounds."""
        return max(self.least, math.pow(0.5, done / self.halved))


@dataclass(frozen=True, slots=True)
class Transition:
    """One step with its advantage."""

    step: Step
    group: NDArray[np.float64]
    advantage: float
    value: float


class MappoLearner:
    """The agents with their optimisers."""

    def __init__(self, agents: Agents, learning: MappoSettings) -> None:
        self.agents, self.learning = agents, learning
        acting = [*agents.ordering.parameters(), *agents.placement.parameters()]
        self.actors = torch.optim.Adam(acting, lr=learning.rate)
        self.critics = torch.optim.Adam(agents.critic.parameters(), lr=learning.critic_rate)

    def learn(
        self, groups: Sequence[Sequence[PoolEpisode]], rng: torch.Generator, done: int = 0
    ) -> dict[str, float]:
        """Learn from groups of episodes, each of one set of tasks; returns the metrics.

        ``done``: number of earlier rounds.
        """
        self._slow_down(self.learning.part(done))
        lessons = [lesson for group in groups for lesson in self._judged(group)]
        spread = float(np.std([lesson.advantage for lesson in lessons])) + 1e-8
        mean = float(np.mean([lesson.advantage for lesson in lessons]))
        measured: list[tuple[float, ...]] = []
        for _ in range(self.learning.epochs):
            for batch in self._batches(lessons, rng):
                measured.append(self._improve(batch, mean, spread))  # noqa: PERF401 (it learns in this loop)
        values = np.array([lesson.value for lesson in lessons])
        unexplained = np.var([lesson.advantage for lesson in lessons]) / max(float(np.var(values)), 1e-12)
        names = ("actor_loss", "critic_loss", "entropy", "changed")
        found = dict(zip(names, np.mean(measured, axis=0).tolist(), strict=True))
        return found | {"surprise": float(unexplained), "lessons": float(len(lessons))}

    def _slow_down(self, part: float) -> None:
        for optimiser, rate in ((self.actors, self.learning.rate), (self.critics, self.learning.critic_rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * part

    def _batches(self, lessons: list[Transition], rng: torch.Generator) -> list[list[Transition]]:
        """A share of the transitions; the task lists of a batch have similar lengths, to limit the padding."""
        order = torch.randperm(len(lessons), generator=rng)[: max(1, int(self.learning.share * len(lessons)))]
        kept = sorted((lessons[row] for row in order.tolist()), key=lambda lesson: lesson.step.sight.waiting)
        batches = [kept[first : first + self.learning.batch] for first in range(0, len(kept), self.learning.batch)]
        return [batches[place] for place in torch.randperm(len(batches), generator=rng).tolist()]

    def _judged(self, group: Sequence[PoolEpisode]) -> list[Transition]:
        unit = float(np.mean([episode.outcome.jct.mean() for episode in group]))
        lessons = []
        for episode, features in zip(group, group_features(group, unit), strict=True):
            with torch.no_grad():
                seen = waiting_of([step.sight for step in episode.steps])
                values = self.agents.value(seen, torch.as_tensor(features, dtype=torch.float32)).numpy()
            gains, wanted = advantages(rewards(episode, unit), values.astype(np.float64), self.learning.smoothing)
            lessons += [
                Transition(step, told, float(gain), float(value))
                for step, told, gain, value in zip(episode.steps, features, gains, wanted, strict=True)
            ]
        return lessons

    def _improve(self, batch: list[Transition], mean: float, spread: float) -> tuple[float, ...]:
        steps = [lesson.step for lesson in batch]
        seen = waiting_of([step.sight for step in steps])
        asked = asked_of([step.sight for step in steps], [step.chosen for step in steps])
        gain = torch.tensor([(lesson.advantage - mean) / spread for lesson in batch], dtype=torch.float32)
        loss, entropy, changed = self._actor_loss(steps, seen, asked, gain)
        self.actors.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.actors.param_groups[0]["params"], self.learning.norm)
        self.actors.step()
        missed = self._teach_critic(batch, seen)
        return float(loss.detach()), missed, entropy, changed

    def _teach_critic(self, batch: list[Transition], seen: OrderingInput) -> float:
        group = torch.as_tensor(np.stack([lesson.group for lesson in batch]), dtype=torch.float32)
        wanted = torch.tensor([lesson.value for lesson in batch], dtype=torch.float32)
        missed = torch.nn.functional.mse_loss(self.agents.value(seen, group), wanted)
        self.critics.zero_grad()
        missed.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.agents.critic.parameters(), self.learning.norm)
        self.critics.step()
        return float(missed.detach())

    def _actor_loss(
        self, steps: list[Step], seen: OrderingInput, asked: PlacementInput, gain: Tensor
    ) -> tuple[Tensor, float, float]:
        most, longest = asked.mask.shape[1], seen.mask.shape[1]
        scores, mattered, before = (
            _stacked([getattr(step, name) for step in steps], longest)
            for name in ("scores", "mattered", "score_density")
        )
        affinity, affinity_before, patience, patience_before = (
            _stacked([getattr(step, name) for step in steps], most)
            for name in ("affinity", "affinity_density", "patience", "patience_density")
        )
        drawn = self.agents.densities(seen, scores, asked, affinity, patience)
        ordered = self._clipped(drawn.scores - before, gain, mattered)
        placed = self._clipped(drawn.affinity - affinity_before, gain, asked.mask)
        waited = self._clipped(drawn.patience - patience_before, gain, asked.mask)
        changed = ((drawn.scores - before).abs() * mattered).sum() / mattered.sum()
        loss = -(ordered + placed + waited) - self.learning.entropy * drawn.entropy
        return loss, float(drawn.entropy.detach()), float(changed.detach())

    def _clipped(self, change: Tensor, gain: Tensor, mask: Tensor) -> Tensor:
        """The clipped objective: mean over steps of the sum over the tasks of each."""
        ratio = torch.exp(torch.clamp(change * mask, -5, 5))
        clipped = torch.clamp(ratio, 1 - self.learning.clip, 1 + self.learning.clip)
        gained = torch.minimum(ratio * gain.unsqueeze(1), clipped * gain.unsqueeze(1))
        return (gained * mask).sum() / mask.sum().clamp(min=1)


def _stacked(arrays: Sequence[NDArray[np.float32]], length: int) -> Tensor:
    padded = np.zeros((len(arrays), length, *arrays[0].shape[1:]), dtype=np.float32)
    for place, array in enumerate(arrays):
        padded[place, : len(array)] = array
    return torch.as_tensor(padded)


VALIDATION_FROM, TRAINING_FROM, SEEDS_EACH = 500_000, 1_000_000, 100_000
"""First training seed of sets of tasks; lower seeds are never trained on, so comparisons use those."""


@dataclass(frozen=True, slots=True)
class DasCourse:
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
    shape: DasShape = field(default_factory=DasShape)
    learning: MappoSettings = field(default_factory=MappoSettings)

    def sources(self) -> tuple[TaskSource, ...]:
        """The sources of the sets, one per mix."""
        return tuple(TaskSource(mix, TaskFormat.MIX, self.pool, self.speeds) for mix in self.mixes)


@dataclass(frozen=True, slots=True)
class DasReport:
    """Result of one round."""

    number: int
    measured: dict[str, float]
    validation: float | None
    """Mean JCT, divided by that of the untrained agents, mean over the mixes."""


class DasTraining:
    """A training in progress. Its state can be written to a file and resumed."""

    def __init__(self, course: DasCourse) -> None:
        """Raises as ``read_source`` does, ``ConfigError`` for a configuration without mixes."""
        if not course.mixes:
            raise ConfigError("MIX", "name at least one file")
        torch.manual_seed(course.seed)
        self.course = course
        self.agents = Agents(course.shape, _pool_switch(course))
        self.learner = MappoLearner(self.agents, course.learning)
        self.rng = torch.Generator().manual_seed(course.seed)
        self.done = 0
        self.base = self.validate()
        self.best, self.best_state = 1.0, _copied(self.agents)
        self.curve: list[float] = []

    def rounds(self) -> Iterator[DasReport]:
        """Train round by round to the configured number."""
        while self.done < self.course.rounds:
            measured = self._round()
            self.done += 1
            last = self.done == self.course.rounds
            yield DasReport(
                self.done, measured, self._keep() if last or self.done % self.course.every == 0 else None
            )

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


def _pool_switch(course: DasCourse) -> NDArray[np.int32]:
    trace, _ = read_source(course.sources()[0], VALIDATION_FROM)
    return trace.pool.switch


def _drawn(source: TaskSource, seed: int, tasks: int | None = None) -> SimulatedPool:
    """The pool of one set, or of its first ``tasks``."""
    trace, speeds = read_source(source, seed)
    if tasks is not None and tasks < len(trace.tasks):
        rows = np.arange(tasks)
        kept = trace.tasks.take(rows)
        return SimulatedPool(kept, trace.pool, replace(speeds, row=speeds.row[:tasks]), DispatchRules())
    return SimulatedPool(trace.tasks, trace.pool, speeds, DispatchRules())


def shape_of(without: Sequence[str]) -> DasShape:
    """The agents without ``communication`` or ``walks``. Raises ``ConfigError`` for other names."""
    unknown = set(without) - {"communication", "walks"}
    if unknown:
        raise ConfigError("--without", f"unknown: {', '.join(sorted(unknown))} (choose from communication, walks)")
    return DasShape(communicates="communication" not in without, walks="walks" not in without)

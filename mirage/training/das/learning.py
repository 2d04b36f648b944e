"""MAPPO: both agents learn from their joint actions, judged by one critic (Yu et al., NeurIPS 2022).

The paper's critic is a Q of both agents' actions, trained by temporal differences. Ours is a V of the whole state,
as in MAPPO, and lambda-returns are its temporal differences: with lists of any length and continuous actions of
both agents a Q would have to learn the simulator as well. Scores are independent given the observation, so each
task's score is clipped separately: the ratio of a hundred tasks' joint densities is never near 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mirage.training.das.agents import Agents, Asked, asked_of, waiting_of
from mirage.training.das.rewards import advantages, group_features, rewards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mirage.training.das.networks import Waiting
    from mirage.training.das.rollouts import Episode, Step


@dataclass(frozen=True, slots=True)
class Learning:
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
class Lesson:
    """One step with its advantage."""

    step: Step
    group: NDArray[np.float64]
    advantage: float
    value: float


class Learner:
    """The agents with their optimisers."""

    def __init__(self, agents: Agents, learning: Learning) -> None:
        self.agents, self.learning = agents, learning
        acting = [*agents.ordering.parameters(), *agents.placement.parameters()]
        self.actors = torch.optim.Adam(acting, lr=learning.rate)
        self.critics = torch.optim.Adam(agents.critic.parameters(), lr=learning.critic_rate)

    def learn(self, groups: Sequence[Sequence[Episode]], rng: torch.Generator, done: int = 0) -> dict[str, float]:
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

    def _batches(self, lessons: list[Lesson], rng: torch.Generator) -> list[list[Lesson]]:
        """A share of the transitions; the task lists of a batch have similar lengths, to limit the padding."""
        order = torch.randperm(len(lessons), generator=rng)[: max(1, int(self.learning.share * len(lessons)))]
        kept = sorted((lessons[row] for row in order.tolist()), key=lambda lesson: lesson.step.sight.waiting)
        batches = [kept[first : first + self.learning.batch] for first in range(0, len(kept), self.learning.batch)]
        return [batches[place] for place in torch.randperm(len(batches), generator=rng).tolist()]

    def _judged(self, group: Sequence[Episode]) -> list[Lesson]:
        unit = float(np.mean([episode.outcome.jct.mean() for episode in group]))
        lessons = []
        for episode, features in zip(group, group_features(group, unit), strict=True):
            with torch.no_grad():
                seen = waiting_of([step.sight for step in episode.steps])
                values = self.agents.value(seen, torch.as_tensor(features, dtype=torch.float32)).numpy()
            gains, wanted = advantages(rewards(episode, unit), values.astype(np.float64), self.learning.smoothing)
            lessons += [
                Lesson(step, told, float(gain), float(value))
                for step, told, gain, value in zip(episode.steps, features, gains, wanted, strict=True)
            ]
        return lessons

    def _improve(self, batch: list[Lesson], mean: float, spread: float) -> tuple[float, ...]:
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

    def _teach_critic(self, batch: list[Lesson], seen: Waiting) -> float:
        group = torch.as_tensor(np.stack([lesson.group for lesson in batch]), dtype=torch.float32)
        wanted = torch.tensor([lesson.value for lesson in batch], dtype=torch.float32)
        missed = torch.nn.functional.mse_loss(self.agents.value(seen, group), wanted)
        self.critics.zero_grad()
        missed.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.agents.critic.parameters(), self.learning.norm)
        self.critics.step()
        return float(missed.detach())

    def _actor_loss(
        self, steps: list[Step], seen: Waiting, asked: Asked, gain: Tensor
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

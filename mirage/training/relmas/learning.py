"""DDPG over lists of segments (Lillicrap et al., ICLR 2016), with stable updates; and its ODRA-style mixture.

From the paper: actor and critic with slow copies (tau), replay, an actor that follows the critic's gradient. Own
choices:

- two critics, of which the lower estimate counts, and an actor that is updated half as often (TD3, Fujimoto et
al.,   ICML 2018);
- exploration by a disturbance of the actor's last layers for some periods (Plappert et al., ICLR 2018), with
little   independent noise on each segment: independent noise on hundreds of numbers cancels out before it changes
a reward;
- returns over the rest of these periods (n-step), with gains measured against a twin of the system that the
matcher   runs alone, see ``bouts``: so the critic learns the actor's contribution, not the load of the system;
- a small charge on actions: the actor keeps the matcher's scores where it knows nothing better.

With ``likelihood`` above 0 (ODRA-style) the actor is also a Gaussian policy: its gradient is mixed with that of
the likelihood of what was done, by its gain over the critic's estimate in the mean action (value learning with
policy gradients).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mirage.training.relmas.batches import actions_of, seen_of
from mirage.training.relmas.networks import LIMITS, Actor, Critic, Seen, Shape, bounds

if TYPE_CHECKING:
    from mirage.allocation.inference.relmas.sight import Sight

Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Learning:
    """Hyperparameters of the training."""

    rate: float = 5e-4
    critic_rate: float = 1e-3
    discount: float = 0.95
    tau: float = 0.01
    batch: int = 48
    replay: int = 6000
    delay: int = 2
    charge: float = 0.02
    """Weight of the mean squared difference between actions and those of the initial actor."""
    likelihood: float = 0.0
    """Share of the likelihood in the actor's gradient: 0 in RELMAS, a half in ODRA."""
    spread: float = 0.05
    """Standard deviation of the noise on each number, as a part of its maximum."""
    norm: float = 1.0
    """Largest norm of the gradients."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Transition of one period: observation, action, gain to the end of the rollout, observation there."""

    sight: Sight
    action: Float32
    """[N, KINDS + K]"""
    gain: float
    discount: float
    """Discount of the value after the rollout; 0 at the end of the system."""
    later: Sight


class Replay:
    """Replay buffer of the latest transitions."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lessons: list[Lesson] = []
        self._oldest = 0

    def __len__(self) -> int:
        return len(self._lessons)

    def add(self, lesson: Lesson) -> None:
        """Add a transition; the oldest is dropped where the buffer is full."""
        if len(self._lessons) < self._most:
            self._lessons.append(lesson)
            return
        self._lessons[self._oldest] = lesson
        self._oldest = (self._oldest + 1) % self._most

    def draw(self, count: int, rng: np.random.Generator) -> list[Lesson]:
        """A random batch."""
        return [self._lessons[row] for row in rng.integers(len(self._lessons), size=count)]


class Learner:
    """Actor and critics with their slow copies and optimisers."""

    def __init__(self, shape: Shape, learning: Learning) -> None:
        self.learning = learning
        self.actor = Actor(shape)
        self.critics = nn.ModuleList([Critic(shape), Critic(shape)])
        self.anchor = deepcopy(self.actor)
        self.slow_actor, self.slow_critics = deepcopy(self.actor), deepcopy(self.critics)
        self.acting = torch.optim.Adam(self.actor.parameters(), lr=learning.rate)
        self.judging = torch.optim.Adam(self.critics.parameters(), lr=learning.critic_rate)
        self.learnt = 0

    def begin_from(self, actor: Actor) -> None:
        """Continue training from this actor; actions equal to this actor's cost nothing."""
        for one in (self.actor, self.slow_actor, self.anchor):
            one.load_state_dict(actor.state_dict())

    def learn(self, lessons: list[Lesson]) -> dict[str, float]:
        """Train on one batch; returns the metrics."""
        seen = seen_of([lesson.sight for lesson in lessons])
        action = actions_of([lesson.action for lesson in lessons], seen.mask.shape[1])
        wanted = self._wanted(lessons)
        missed = self._judge(seen, action, wanted)
        measured = {"missed": missed}
        self.learnt += 1
        if self.learnt % self.learning.delay == 0:
            measured["value"] = self._act(seen, action, wanted)
            self._follow(self.slow_actor, self.actor)
            self._follow(self.slow_critics, self.critics)
        return measured

    def _wanted(self, lessons: list[Lesson]) -> Tensor:
        later = seen_of([lesson.later for lesson in lessons])
        gain = torch.tensor([lesson.gain for lesson in lessons], dtype=torch.float32)
        discount = torch.tensor([lesson.discount for lesson in lessons], dtype=torch.float32)
        with torch.no_grad():
            action = self.slow_actor(*later)
            values = [critic(later, action) for critic in self.slow_critics]
            return gain + discount * torch.minimum(*values)

    def _judge(self, seen: Seen, action: Tensor, wanted: Tensor) -> float:
        values = [critic(seen, action) for critic in self.critics]
        missed = sum((nn.functional.smooth_l1_loss(value, wanted) for value in values), torch.zeros(()))
        _improve(self.judging, missed, self.learning.norm)
        return float(missed.detach())

    def _act(self, seen: Seen, action: Tensor, wanted: Tensor) -> float:
        own = self.actor(*seen)
        with torch.no_grad():
            there = self.anchor(*seen)
        value = self.critics[0](seen, own)
        loss = -value.mean() + self.learning.charge * square(seen, own - there)
        if self.learning.likelihood > 0:
            better = wanted - value.detach()
            told = (better / (better.std() + 1e-6) * self._density(seen, action - own)).mean()
            loss = (1 - self.learning.likelihood) * loss - self.learning.likelihood * 0.1 * told
        _improve(self.acting, loss, self.learning.norm)
        return float(value.detach().mean())

    def _density(self, seen: Seen, off: Tensor) -> Tensor:
        """Log-likelihood (B,) of actions, up to a constant, in the mean over the numbers of a list."""
        off = off / bounds(seen.pair.shape[2])
        each = -0.5 * (off / self.learning.spread).clamp(-3, 3).square().mean(dim=-1)
        density: Tensor = (each * seen.mask).sum(dim=1) / seen.mask.sum(dim=1).clamp(min=1.0)
        return density

    def _follow(self, slow: nn.Module, fast: nn.Module) -> None:
        with torch.no_grad():
            for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                old.lerp_(new, self.learning.tau)


def square(seen: Seen, action: Tensor) -> Tensor:
    """Mean, over rows, of the sum of squares of the scores divided by their maxima."""
    each = (action / bounds(seen.pair.shape[2])).square()
    each = each[..., : len(LIMITS)].sum(dim=-1) + each[..., len(LIMITS) :].mean(dim=-1)
    return (each * seen.mask).sum() / seen.mask.sum().clamp(min=1.0)


def _improve(optimiser: torch.optim.Optimizer, loss: Tensor, norm: float) -> None:
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], norm)
    optimiser.step()

"""DDPG over lists of pieces (Lillicrap et al., ICLR 2016), with what made it stable; and its ODRA-style mixture.

Taken over: actor and critic with slow copies (tau), replay, an actor that follows the critic's gradient. Own
choices:

- two critics of which the lesser is estimated, and an actor that learns half as often (TD3, Fujimoto et al., ICML
  2018);
- exploration by disturbing the actor's last layers for a stretch of periods (Plappert et al., ICLR 2018), with
  little noise of each piece's own: independent noise on hundreds of numbers cancels out before any reward tells
  of it;
- returns over the rest of the stretch (n-step), gains being told against a twin of the system that the matcher
  plays alone, see ``bouts``: so the critic learns what the actor adds, not how busy the system is;
- a small charge on actions: the actor keeps to the matcher's opinion where it knows nothing better.

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
    """How is learned."""

    rate: float = 5e-4
    critic_rate: float = 1e-3
    discount: float = 0.95
    tau: float = 0.01
    batch: int = 48
    replay: int = 6000
    delay: int = 2
    charge: float = 0.02
    """On the mean square of what is done otherwise than by the actor from which learning began."""
    likelihood: float = 0.0
    """Part of the actor's gradient that is the likelihood's: 0 in RELMAS, a half in ODRA."""
    spread: float = 0.05
    """Standard deviation of each number's own noise, by the most it can be."""
    norm: float = 1.0
    """Gradients are cut to this."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One period: what was seen and done, what it gained to the end of its stretch, and what was seen then."""

    sight: Sight
    action: Float32
    """[N, KINDS + K]"""
    gain: float
    discount: float
    """Of what comes after the stretch; 0 where nothing does."""
    later: Sight


class Replay:
    """The latest lessons."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lessons: list[Lesson] = []
        self._oldest = 0

    def __len__(self) -> int:
        return len(self._lessons)

    def add(self, lesson: Lesson) -> None:
        """Forget the oldest where there is no room."""
        if len(self._lessons) < self._most:
            self._lessons.append(lesson)
            return
        self._lessons[self._oldest] = lesson
        self._oldest = (self._oldest + 1) % self._most

    def draw(self, count: int, rng: np.random.Generator) -> list[Lesson]:
        """At random."""
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
        """Learn on from this one; what it does costs nothing."""
        for one in (self.actor, self.slow_actor, self.anchor):
            one.load_state_dict(actor.state_dict())

    def learn(self, lessons: list[Lesson]) -> dict[str, float]:
        """One batch; returns what was measured."""
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
        """Log-likelihood (B,) of what was done, but for a constant, in the mean over the numbers of a list."""
        off = off / bounds(seen.pair.shape[2])
        each = -0.5 * (off / self.learning.spread).clamp(-3, 3).square().mean(dim=-1)
        density: Tensor = (each * seen.mask).sum(dim=1) / seen.mask.sum(dim=1).clamp(min=1.0)
        return density

    def _follow(self, slow: nn.Module, fast: nn.Module) -> None:
        with torch.no_grad():
            for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                old.lerp_(new, self.learning.tau)


def square(seen: Seen, action: Tensor) -> Tensor:
    """The mean, over rows, of the sum of squares, scores being by the most that they can be."""
    each = (action / bounds(seen.pair.shape[2])).square()
    each = each[..., : len(LIMITS)].sum(dim=-1) + each[..., len(LIMITS) :].mean(dim=-1)
    return (each * seen.mask).sum() / seen.mask.sum().clamp(min=1.0)


def _improve(optimiser: torch.optim.Optimizer, loss: Tensor, norm: float) -> None:
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], norm)
    optimiser.step()

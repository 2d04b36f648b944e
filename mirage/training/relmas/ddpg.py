"""Actor and critic over lists of segments, and their training: DDPG, and its ODRA-style mixture.

The networks are recurrent over the ready segments in the order of their deadlines. Tensors are batches (B) of
times, padded at the end (N) and masked. The recurrence runs from the earliest deadline on, so padding behind a
segment cannot affect it; later segments affect it only through the mean of all.

DDPG is that of Lillicrap et al. (ICLR 2016). From the paper: actor and critic with slow copies (tau), replay, an
actor that follows the critic's gradient. Own choices, for stable updates:

- two critics, of which the lower estimate counts, and an actor that is updated half as often (TD3, Fujimoto et
  al., ICML 2018);
- exploration by a disturbance of the actor's last layers for some periods (Plappert et al., ICLR 2018), with
  little independent noise on each segment: independent noise on hundreds of numbers cancels out before it
  changes a reward;
- returns over the rest of these periods (n-step), with gains measured against a twin of the system that the
  matcher runs alone, see ``rollouts``: so the critic learns the actor's contribution, not the load of the
  system;
- a small charge on actions: the actor keeps the matcher's scores where it knows nothing better.

With ``likelihood`` above 0 (ODRA-style) the actor is also a Gaussian policy: its gradient is mixed with that of
the likelihood of what was done, by its gain over the critic's estimate in the mean action (value learning with
policy gradients).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE
from mirage.training.checkpoint import exported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.inference.relmas import RelmasObservation

LIMITS, FAVOUR = (1.0, 1.5, 1.0), 1.5
"""Largest scores: priority, hold and caution (columns of ``kernel.scored``), and the affinity to each kind: the
next segment's seconds count for exp(-1.5), 0.22 of their value."""


@dataclass(frozen=True, slots=True)
class RelmasShape:
    """How large the networks are."""

    width: int = 64
    """Width of the recurrent state."""
    pair: int = 16


class Seen(NamedTuple):
    """A batch of observations."""

    piece: Tensor
    """(B, N, len(PIECE))"""
    pair: Tensor
    """(B, N, K, len(PAIR))"""
    state: Tensor
    """(B, len(STATE))"""
    mask: Tensor
    """(B, N) 1 where a segment exists."""


class Shift(NamedTuple):
    """Disturbance of the actor's last layers at each time of a batch."""

    request: Tensor
    """(B, len(LIMITS), W + 1) The bias last."""
    affinity: Tensor
    """(B, V + 1) The bias last."""


class Reader(nn.Module):
    """Reads the rows one after the other; ``told``: whether the actions are part of the input."""

    def __init__(self, shape: RelmasShape, *, told: bool = False) -> None:
        super().__init__()
        done = len(LIMITS) if told else 0
        self.pairs = nn.Sequential(nn.Linear(len(PAIR) + told, shape.pair), nn.ReLU())
        self.pieces = nn.Sequential(nn.Linear(len(PIECE) + shape.pair + len(STATE) + done, shape.width), nn.ReLU())
        self.memory = nn.LSTM(shape.width, shape.width, batch_first=True)

    def forward(self, piece: Tensor, pair: Tensor, state: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State at each segment (B, N, W), its mean (B, W), and that of each pair (B, N, K, V)."""
        pairs = self.pairs(pair)
        around = state.unsqueeze(1).expand(-1, piece.shape[1], -1)
        pieces = self.pieces(torch.cat([piece, pairs.mean(dim=2), around], dim=-1))
        remembered, _ = self.memory(pieces)
        shown = mask.unsqueeze(-1)
        mean = (remembered * shown).sum(dim=1) / shown.sum(dim=1).clamp(min=1.0)
        return remembered, mean, pairs


class Actor(nn.Module):
    """Scores (B, N, KINDS + K) within ``bounds``; initially 0."""

    def __init__(self, shape: RelmasShape) -> None:
        super().__init__()
        self.reader = Reader(shape)
        self.judged = nn.Sequential(nn.Linear(2 * shape.width, shape.width), nn.ReLU())
        self.request = nn.Linear(shape.width, len(LIMITS))
        self.drawn = nn.Sequential(nn.Linear(shape.width + shape.pair, shape.pair), nn.ReLU())
        self.affinity = nn.Linear(shape.pair, 1)
        for last in (self.request, self.affinity):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, piece: Tensor, pair: Tensor, state: Tensor, mask: Tensor) -> Tensor:
        """(B, N, KINDS + K)"""
        judged, drawn = self._features(piece, pair, state, mask)
        return _bounded(self.request(judged), self.affinity(drawn))

    def disturbed(self, seen: Seen, shift: Shift) -> Tensor:
        """As ``forward``, with separate last layers for each time of the batch."""
        judged, drawn = self._features(*seen)
        bias = shift.request[:, None, :, -1]
        request = self.request(judged) + torch.einsum("bnw,bsw->bns", judged, shift.request[..., :-1]) + bias
        affinity = shift.affinity[:, None, None]
        more = (drawn * affinity[..., :-1]).sum(dim=-1, keepdim=True) + affinity[..., -1:]
        return _bounded(request, self.affinity(drawn) + more)

    def _features(self, piece: Tensor, pair: Tensor, state: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        remembered, mean, pairs = self.reader(piece, pair, state, mask)
        judged = self.judged(torch.cat([remembered, mean.unsqueeze(1).expand_as(remembered)], dim=-1))
        wide = judged.unsqueeze(2).expand(-1, -1, pairs.shape[2], -1)
        return judged, self.drawn(torch.cat([wide, pairs], dim=-1))


def bounds(kinds: int) -> Tensor:
    """(KINDS + K,) Largest absolute value of each score."""
    return torch.tensor((*LIMITS, *(FAVOUR for _ in range(kinds))))


def _bounded(request: Tensor, affinity: Tensor) -> Tensor:
    within = torch.tanh(request) * torch.tensor(LIMITS)
    return torch.cat([within, FAVOUR * torch.tanh(affinity).squeeze(-1)], dim=-1)


class Critic(nn.Module):
    """Value of a state and an action: Q."""

    def __init__(self, shape: RelmasShape) -> None:
        super().__init__()
        self.reader = Reader(shape, told=True)
        self.value = nn.Sequential(
            nn.Linear(shape.width + len(STATE), shape.width), nn.ReLU(), nn.Linear(shape.width, 1)
        )

    def forward(self, seen: Seen, action: Tensor) -> Tensor:
        """Shape (B,)."""
        told = action / bounds(seen.pair.shape[2])
        piece = torch.cat([seen.piece, told[..., : len(LIMITS)]], dim=-1)
        pair = torch.cat([seen.pair, told[..., len(LIMITS) :].unsqueeze(-1)], dim=-1)
        _, mean, _ = self.reader(piece, pair, seen.state, seen.mask)
        value: Tensor = self.value(torch.cat([mean, seen.state], dim=-1)).squeeze(-1)
        return value


def seen_of(sights: Sequence[RelmasObservation]) -> Seen:
    """Padded at the end to the longest; at least one segment long."""
    count, kinds = len(sights), sights[0].pair.shape[1]
    longest = max(1, *(len(sight.order) for sight in sights)) if count > 1 else max(1, len(sights[0].order))
    piece = np.zeros((count, longest, len(PIECE)), np.float32)
    pair = np.zeros((count, longest, kinds, len(PAIR)), np.float32)
    state = np.zeros((count, len(STATE)), np.float32)
    mask = np.zeros((count, longest), np.float32)
    for row, sight in enumerate(sights):
        length = len(sight.order)
        piece[row, :length], pair[row, :length] = sight.piece, sight.pair
        state[row], mask[row, :length] = sight.state, 1.0
    return Seen(*(torch.from_numpy(part) for part in (piece, pair, state, mask)))


def actions_of(actions: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]], longest: int) -> Tensor:
    """(B, longest, KINDS + K), padded at the end."""
    padded = np.zeros((len(actions), longest, actions[0].shape[1]), np.float32)
    for row, action in enumerate(actions):
        padded[row, : len(action)] = action
    return torch.from_numpy(padded)


AXES = {
    "piece": {1: "pieces"},
    "pair": {1: "pieces", 2: "kinds"},
    "state": {},
    "mask": {1: "pieces"},
    "scores": {1: "pieces", 2: "columns"},
}


def graph_of(actor: Actor) -> bytes:
    """The network, for any number of segments and kinds. Raises ``RuntimeError`` where the export differs."""
    rng = torch.Generator().manual_seed(0)
    inputs = {
        "piece": torch.randn((1, 7, len(PIECE)), generator=rng),
        "pair": torch.randn((1, 7, 5, len(PAIR)), generator=rng),
        "state": torch.randn((1, len(STATE)), generator=rng),
        "mask": torch.ones(1, 7),
    }
    return exported(actor, inputs, ("scores",), AXES)


Float32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DdpgSettings:
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

    sight: RelmasObservation
    action: Float32
    """[N, KINDS + K]"""
    gain: float
    discount: float
    """Discount of the value after the rollout; 0 at the end of the system."""
    later: RelmasObservation


class ReplayMemory:
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


class DdpgLearner:
    """Actor and critics with their slow copies and optimisers."""

    def __init__(self, shape: RelmasShape, learning: DdpgSettings) -> None:
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

"""Many systems at once, played by an actor that explores, or does what it holds best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mirage.training.relmas.batches import seen_of
from mirage.training.relmas.bouts import scores_of
from mirage.training.relmas.learning import Lesson
from mirage.training.relmas.networks import FAVOUR, Shift

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mirage.allocation.inference.relmas.sight import Sight
    from mirage.training.relmas.bouts import Bout
    from mirage.training.relmas.networks import Actor

    Float32 = NDArray[np.float32]


def explore(
    bouts: Sequence[Bout],
    actor: Actor,
    stretch: int,
    discount: float,
    noise: tuple[float, float],
    rng: torch.Generator,
) -> list[Lesson]:
    """Play each for a stretch of periods, its own disturbance kept through it; what is to be learnt from that.

    ``noise``: standard deviations of what is added to weights, and to each number.
    """
    shift = drawn_shift(actor, len(bouts), noise[0], rng)
    for bout in bouts:
        bout.pair()
    steps: list[list[tuple[Sight, Float32, float]]] = [[] for _ in bouts]
    for _ in range(stretch):
        sights = [bout.sight() for bout in bouts]
        actions = disturbed(actor, sights, shift, noise[1], rng)
        for bout, sight, action, taken in zip(bouts, sights, actions, steps, strict=True):
            if not bout.over:
                taken.append((sight, action, bout.step(scores_of(sight, action))))
    return [lesson for bout, taken in zip(bouts, steps, strict=True) for lesson in _lessons(bout, taken, discount)]


def _lessons(bout: Bout, taken: list[tuple[Sight, Float32, float]], discount: float) -> list[Lesson]:
    later = bout.sight()
    gain, left = 0.0, 0.0 if bout.over else 1.0
    found = []
    for sight, action, reward in reversed(taken):
        gain, left = reward + discount * gain, discount * left
        if len(sight.order):
            found.append(Lesson(sight, action, gain, left, later))
    return found


def drawn_shift(actor: Actor, count: int, spread: float, rng: torch.Generator) -> Shift:
    """Normal numbers for the last layers, scaled by how many feed each."""
    shapes = [1 + layer.in_features for layer in (actor.priority, actor.affinity)]
    return Shift(*(torch.randn((count, size), generator=rng) * spread * (4.0 / size**0.5) for size in shapes))


def disturbed(
    actor: Actor, sights: Sequence[Sight], shift: Shift, spread: float, rng: torch.Generator
) -> list[Float32]:
    """[N, 1 + U] for each: what an actor with these last layers does, with noise of each number's own."""
    seen = seen_of(sights)
    with torch.no_grad():
        priority, affinity = actor.disturbed(seen, shift)
        priority = priority + spread * torch.randn(priority.shape, generator=rng)
        affinity = affinity + FAVOUR * spread * torch.randn(affinity.shape, generator=rng)
    whole = torch.cat([priority.clamp(-1, 1).unsqueeze(-1), affinity.clamp(-FAVOUR, FAVOUR)], dim=-1).numpy()
    return [action[: len(sight.order)] for action, sight in zip(whole, sights, strict=True)]


def play(bouts: Sequence[Bout], actor: Actor) -> None:
    """Each to its end, by the actor's own opinion."""
    going = [bout for bout in bouts if not bout.over]
    while going:
        sights = [bout.sight() for bout in going]
        with torch.no_grad():
            priority, affinity = actor(*seen_of(sights))
        whole = torch.cat([priority.unsqueeze(-1), affinity], dim=-1).numpy()
        for bout, sight, action in zip(going, sights, whole, strict=True):
            bout.step(scores_of(sight, action))
        going = [bout for bout in going if not bout.over]

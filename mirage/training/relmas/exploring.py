"""Run many systems together with an actor, with or without exploration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mirage.training.relmas.batches import seen_of
from mirage.training.relmas.learning import Lesson
from mirage.training.relmas.networks import LIMITS, Shift, bounds

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
    """Run each system for some periods with a fixed disturbance of the weights; returns the transitions.

    ``noise``: standard deviations of the noise on weights, and on each number.
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
                taken.append((sight, action, bout.step(sight.scores(action))))
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
    """Normal numbers for the last layers, scaled by the number of inputs."""
    width, pair = 1 + actor.request.in_features, 1 + actor.affinity.in_features
    request = torch.randn((count, len(LIMITS), width), generator=rng) * spread * (4.0 / width**0.5)
    return Shift(request, torch.randn((count, pair), generator=rng) * spread * (4.0 / pair**0.5))


def disturbed(
    actor: Actor, sights: Sequence[Sight], shift: Shift, spread: float, rng: torch.Generator
) -> list[Float32]:
    """[N, KINDS + K] for each: actions of an actor with these last layers, with noise on each number."""
    seen = seen_of(sights)
    with torch.no_grad():
        most = bounds(seen.pair.shape[2])
        told = actor.disturbed(seen, shift)
        told = told + spread * most * torch.randn(told.shape, generator=rng)
    whole = torch.maximum(torch.minimum(told, most), -most).numpy()
    return [action[: len(sight.order)] for action, sight in zip(whole, sights, strict=True)]


def play(bouts: Sequence[Bout], actor: Actor) -> None:
    """Run each to its end with the actor's best actions."""
    going = [bout for bout in bouts if not bout.over]
    while going:
        sights = [bout.sight() for bout in going]
        with torch.no_grad():
            whole = actor(*seen_of(sights)).numpy()
        for bout, sight, action in zip(going, sights, whole, strict=True):
            bout.step(sight.scores(action))
        going = [bout for bout in going if not bout.over]

"""Train an actor to imitate constants, on observations of runs by them (behaviour cloning)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from mirage.training.relmas.batches import actions_of, seen_of
from mirage.training.relmas.learning import square

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mirage.allocation.inference.relmas.sight import Sight
    from mirage.training.relmas.bouts import Bout
    from mirage.training.relmas.networks import Actor

    Example = tuple[Sight, NDArray[np.float64]]

BATCH, RATE = 32, 2e-3


def examples_of(bouts: Sequence[Bout], periods: int) -> list[Example]:
    """Observations of runs by constants, and the scores of the constants."""
    with ThreadPoolExecutor() as pool:
        shown = pool.map(lambda bout: _shown(bout, periods), bouts)
        return [(sight, told) for each in shown for sight, told in each if len(sight.order)]


def _shown(bout: Bout, periods: int) -> list[Example]:
    found: list[Example] = []
    for _ in range(periods):
        if bout.over:
            break
        sight = bout.sight()
        told = bout.told(sight)
        found.append((sight, told))
        bout.step(sight.scores(told))
    return found


def imitate(actor: Actor, examples: Sequence[Example], steps: int, rng: np.random.Generator) -> float:
    """Regression with a learning rate that falls to 0; returns the mean squared error at the end."""
    optimiser = torch.optim.Adam(actor.parameters(), lr=RATE)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    missed, last = 0.0, max(steps // 10, 1)
    for step in range(steps):
        drawn = [examples[row] for row in rng.integers(len(examples), size=BATCH)]
        seen = seen_of([sight for sight, _ in drawn])
        wanted = actions_of([told for _, told in drawn], seen.mask.shape[1])
        loss = square(seen, actor(*seen) - wanted)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        falling.step()
        missed += float(loss.detach()) / last if step >= steps - last else 0.0
    return missed

"""Small systems at one time, as compiled policies look at them."""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.compiled_policies import new_draft
from mirage.allocation.inference.kernel.layout import DispatchDraft, Look


def random_look(
    seed: int, *, ready: int = 8, units: int = 4, kinds: int = 2, pieces: int = 3
) -> tuple[Look, float]:
    """Some requests that wait, some that run, at a time that is not 0."""
    rng = np.random.default_rng(seed)
    models, now = 3, 7.0
    seconds = rng.uniform(0.1, 2.0, (models * pieces, kinds))
    seconds[rng.random(seconds.shape) < 0.1] = np.nan
    seconds[np.isnan(seconds).all(axis=1), 0] = 1.0
    first = np.arange(0, models * pieces + 1, pieces, dtype=np.int32)
    running = np.where(rng.random(units) < 0.5, ready + np.arange(units), -1)
    slots = ready + units
    model = rng.integers(0, models, slots).astype(np.int32)
    arrival = np.sort(rng.uniform(0, now, slots))
    look = Look(
        ready=np.arange(ready),
        arrival=arrival,
        deadline=arrival + rng.uniform(1.0, 12.0, slots),
        weight=rng.choice([1.0, 1.0, 2.0], slots),
        model=model,
        tenant=rng.integers(0, 2, slots).astype(np.int32),
        number=np.arange(slots),
        piece=(first[model] + rng.integers(0, pieces, slots)).astype(np.int32),
        ready_since=np.full(slots, now - 0.5),
        served=rng.uniform(0, 1, slots),
        kind=rng.integers(0, kinds, units).astype(np.int32),
        running=running,
        free_at=np.where(running >= 0, now + rng.uniform(0.0, 2.0, units), now - 1.0),
        drawn=np.where(running >= 0, rng.uniform(0, 2.0, units), 0.0),
        tenant_ended=np.array([4, 5]),
        tenant_kept=np.array([3, 1]),
        seconds=seconds,
        compute_seconds=seconds / 2,
        joules=seconds * np.array([3.0, 1.0, 2.0])[:kinds],
        dram_bytes=seconds * 0.7,
        remaining=tails(seconds, pieces),
        first=first,
        least=tails(np.nanmin(seconds, axis=1, keepdims=True), pieces)[:, 0],
        bandwidth=2.0,
    )
    return look, now


def tails(seconds: np.ndarray, pieces: int) -> np.ndarray:
    """Sums from each segment to the end of its model."""
    blocks = seconds.reshape(-1, pieces, seconds.shape[1])
    return np.ascontiguousarray(np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1].reshape(seconds.shape))


def draft_for(look: Look) -> DispatchDraft:
    """Working memory."""
    return new_draft(len(look.number), len(look.kind))

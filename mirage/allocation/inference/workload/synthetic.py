"""Randomly drawn cost tables: for tests, and for trials before a measured table exists.

A segment is a number of operations and of bytes, with a preference for one kind of dataflow. A kind has a peak of
operations, a memory port, and an efficiency for each preference, so that no kind is the best for everything. By
the roofline model a segment takes the longer of computing and data transfer. The numbers are of the order of edge
devices (1e11 to 1e12 operations and 1e10 bytes per second), and represent no device in particular.
"""

from __future__ import annotations

import numpy as np

from mirage.domain.request import CostTable

_PEAK = (1e12, 4e11)
"""Operations per second; a third kind is like the first again, and so on."""
_PORT = (1.6e10, 1.2e10)
"""Bytes per second."""
_JOULES = (4e-13, 8e-13)
"""Joules per operation."""
_JOULES_OF_A_BYTE = 1e-10
_BENTS = 3
_INTENSITY = (200.0, 40.0, 4.0)
"""Median operations per byte, by preference: convolutions, depthwise ones and small products, look-ups."""


def synthetic_costs(
    seed: int = 0, models: int = 8, kinds: int = 2, mean_pieces: float = 20.0, operations: float = 2e9
) -> CostTable:
    """``operations``: median of a model."""
    rng = np.random.default_rng(seed)
    counts = 1 + rng.poisson(mean_pieces - 1.0, models)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    pieces = int(first[-1])
    model = np.repeat(np.arange(models), counts)
    bent = (rng.integers(0, _BENTS, models)[model] + (rng.random(pieces) < 0.3)) % _BENTS
    size = rng.lognormal(0.0, 0.5, pieces)
    whole = operations * rng.lognormal(0.0, 0.8, models)
    work = whole[model] * size / np.bincount(model, size)[model]
    moved = work / (np.array(_INTENSITY)[bent] * rng.lognormal(0.0, 0.4, pieces))
    kind = np.arange(kinds) % len(_PEAK)
    efficiency = rng.uniform(0.15, 0.9, (_BENTS, kinds))[bent] * rng.uniform(0.8, 1.0, (pieces, kinds))
    computing = work[:, None] / (np.array(_PEAK)[kind] * efficiency)
    return CostTable(
        models=tuple(f"model{row}" for row in range(models)),
        first=first,
        pieces=tuple(f"piece{row - first[model[row]]}" for row in range(pieces)),
        kinds=tuple(f"kind{row}" for row in range(kinds)),
        seconds=np.maximum(computing, moved[:, None] / np.array(_PORT)[kind]),
        compute_seconds=computing,
        joules=work[:, None] * np.array(_JOULES)[kind] / efficiency + moved[:, None] * _JOULES_OF_A_BYTE,
        dram_bytes=np.repeat(moved[:, None], kinds, axis=1),
    )

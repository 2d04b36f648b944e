"""Random numbers bound to jobs, not to the order of calls.

Future ``r`` gives job ``j`` the same number in every evaluation. So two evaluations ten minutes apart differ by
what happened in between, not by chance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Uniforms = NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea & Flood, OOPSLA 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def uniforms(seed: int, futures: NDArray[np.int64], things: NDArray[np.int64]) -> Uniforms:
    """Independent numbers within (0, 1), shape (futures, things); equal things have equal numbers."""
    rows = _mixed(futures.astype(np.uint64) * _GOLDEN + np.uint64(seed & 0xFFFF_FFFF_FFFF_FFFF))
    words = _mixed(_mixed(things.astype(np.uint64) + _GOLDEN)[None, :] ^ rows[:, None])
    found: Uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    return found


def following(own: Uniforms, shared: Uniforms, whether: Uniforms, share: float) -> Uniforms:
    """``own``, but ``shared`` where ``whether`` is below ``share``: things of one group that often go alike."""
    return np.where(whether < share, shared, own)

"""What the learned agents see at one instant, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE, see

if TYPE_CHECKING:
    from mirage.allocation.inference.kernel.look import Look

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]

MOST = 64
"""So many ready pieces are seen at most: those with the earliest deadlines that can still be kept."""

SCHEMA = "relmas-v1"
SCHEMA_HASH = sha256("|".join((SCHEMA, *PIECE, *PAIR, *STATE, str(MOST))).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Sight:
    """Of one instant. Rows (N) are ready pieces by deadline, those that are late anyhow behind them."""

    order: Int32
    """[N] Rows of the ready requests."""
    piece: Float32
    """[N, len(PIECE)]"""
    pair: Float32
    """[N, U, len(PAIR)]"""
    state: Float32
    """[len(STATE)]"""


def sight_of(look: Look, now: float, count: int, period: float) -> Sight:
    """What is seen of the ``count`` ready requests."""
    slots = look.ready[:count]
    deadline = look.deadline[slots]
    late = deadline - now < look.least[look.piece[slots]]
    order = np.lexsort((deadline, late))[:MOST].astype(np.int32)
    seen = (
        np.zeros((len(order), len(PIECE)), np.float32),
        np.zeros((len(order), len(look.kind), len(PAIR)), np.float32),
        np.zeros(len(STATE), np.float32),
    )
    see(look, now, period, order, count, *seen)
    return Sight(order, *seen)

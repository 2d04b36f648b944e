"""The observation of the trained agents, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.allocation.inference.kernel.scored import KINDS
from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE, Rows, Usual, gather, see
from mirage.allocation.inference.scores import Scores

if TYPE_CHECKING:
    from mirage.allocation.inference.kernel.look import Look

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]

MOST = 64
"""Most ready segments in an observation: those with the earliest deadlines that can still be kept."""

RECENT = 0.9
"""Weight of earlier observations, per observation."""

SCHEMA = "relmas-v2"
SCHEMA_HASH = sha256("|".join((SCHEMA, *PIECE, *PAIR, *STATE, str(MOST))).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Sight:
    """The observation at one time. Rows (N) are by deadline; those that are late in any case come last."""

    order: Int32
    """[N] Rows of the view's ready requests, then of running ones; -1 less the model of requests to come."""
    piece: Float32
    """[N, len(PIECE)]"""
    pair: Float32
    """[N, K, len(PAIR)]"""
    state: Float32
    """[len(STATE)]"""
    model: Int32
    """[N]"""
    models: int
    """Number of models, M."""

    def scores(self, action: NDArray[np.floating]) -> Scores:
        """Distribute ``action`` [at least N, KINDS + K] to the requests."""
        told = np.asarray(action[: len(self.order)], dtype=np.float64)
        present = self.order >= 0
        coming = np.zeros((self.models, KINDS + self.pair.shape[1]))
        coming[-1 - self.order[~present]] = told[~present]
        return Scores(self.order[present], told[present], coming)


class Eye:
    """Observes one system over time, and remembers its usual arrivals."""

    def __init__(self, first: Int32, dram_bytes: NDArray[np.float64]) -> None:
        """Columns of the cost table."""
        models = len(first) - 1
        self._usual = Usual(
            allowed=np.full(models, np.nan),
            tenant=np.zeros(models, np.int32),
            weight=np.ones(models),
            often=np.zeros(models),
            moved=_bytes_left(first, dram_bytes),
            kinds=np.zeros((3, dram_bytes.shape[1])),
        )

    def copy(self) -> Eye:
        """An independent observer with the same memory."""
        other = object.__new__(Eye)
        other._usual = Usual(*(part.copy() for part in self._usual))
        return other

    def look(self, look: Look, now: float, count: int, period: float) -> Sight:
        """The observation of the ``count`` ready requests, the running ones, and those to come."""
        slots = look.ready[:count]
        deadline = look.deadline[slots]
        late = deadline - now < look.least[look.piece[slots]]
        chosen = np.lexsort((deadline, late))[:MOST].astype(np.int32)
        self._remember(look, slots)
        rows = _room(len(chosen) + len(look.kind) + len(self._usual.often))
        found = gather(look, now, chosen, self._usual, rows)
        late = rows.deadline[:found] - rows.begins[:found] < look.least[rows.piece[:found]]
        order = np.lexsort((rows.deadline[:found], late)).astype(np.int32)
        seen = (
            np.zeros((found, len(PIECE)), np.float32),
            np.zeros((found, look.seconds.shape[1], len(PAIR)), np.float32),
            np.zeros(len(STATE), np.float32),
        )
        see(look, now, period, rows, order, count, self._usual, *seen)
        return Sight(rows.row[order], *seen, rows.model[order], len(self._usual.often))

    def _remember(self, look: Look, slots: NDArray[np.integer]) -> None:
        usual, model = self._usual, look.model[slots]
        if not len(model):
            return
        usual.allowed[model] = look.deadline[slots] - look.arrival[slots]
        usual.tenant[model], usual.weight[model] = look.tenant[slots], look.weight[slots]
        usual.often[:] *= RECENT
        usual.often[:] += (1.0 - RECENT) / len(model) * np.bincount(model, minlength=len(usual.often))


def _room(count: int) -> Rows:
    whole, part = np.zeros((3, count), np.int32), np.zeros((3, count))
    return Rows(whole[0], whole[1], whole[2], part[0], part[1], part[2])


def _bytes_left(first: Int32, dram_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """[L] Seconds to the end of the model, each segment on the kind that moves the fewest bytes."""
    least = np.fmin.reduce(dram_bytes, axis=1)
    for begin, end in pairwise(first):
        least[begin:end] = np.cumsum(least[begin:end][::-1])[::-1]
    return np.asarray(least)

"""Inference requests as columns, and the cost of their segments on each kind of unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CostTable:
    """Cost of each segment (L) of each model (M) on each kind of unit (K).

    A segment (``piece`` in names) is a layer, several layers, or a whole network: a unit runs it without a break.
    A model's segments run one after the other, in the order of their rows. NaN: this kind cannot run this segment.
    """

    models: tuple[str, ...]
    """[M]"""
    first: Int32
    """[M + 1] First segment of each model."""
    pieces: tuple[str, ...]
    """[L] Names, unique within a model."""
    kinds: tuple[str, ...]
    """[K]"""
    seconds: Float64
    """[L, K] Alone on the unit, with as much bandwidth as the unit can draw."""
    compute_seconds: Float64
    """[L, K] What of it would remain if memory were infinitely fast; at most ``seconds``."""
    joules: Float64
    """[L, K] Of one run."""
    dram_bytes: Float64
    """[L, K] Moved to and from the shared memory; 0 where nothing is shared."""

    def remaining(self) -> Float64:
        """[L, K] Seconds from the start of a segment to the end of its model, all on one kind; NaN as above."""
        tail = np.empty_like(self.seconds)
        for begin, end in zip(self.first[:-1], self.first[1:], strict=True):
            tail[begin:end] = np.cumsum(self.seconds[begin:end][::-1], axis=0)[::-1]
        return tail


@dataclass(frozen=True, slots=True)
class RequestTable:
    """Requests (R) in order of arrival; a request's row is its number. Times are seconds from the table's zero."""

    arrival: Float64
    """[R] Ascending."""
    model: Int32
    """[R] Row of ``CostTable.models``."""
    tenant: Int32
    """[R] Row of ``tenants``."""
    deadline: Float64
    """[R] The time at which the answer is late; infinity where it has no deadline."""
    weight: Float64
    """[R] How much the request matters next to others; above 0, 1 is usual."""
    tenants: tuple[str, ...]
    """[T]"""

    def __len__(self) -> int:
        return len(self.arrival)

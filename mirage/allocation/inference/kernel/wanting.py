"""How much bandwidth pieces want: alone on their units, they move their bytes in their seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.allocation.inference.kernel.compile import inlined

if TYPE_CHECKING:
    import numpy as np

    from mirage.allocation.inference.kernel.look import Look


@inlined
def want(look: Look, piece: int, kind: int) -> float:
    """Bytes a second of a piece on a kind of unit."""
    return look.dram_bytes[piece, kind] / look.seconds[piece, kind]


@inlined
def wanted_by_all(drawn: np.ndarray) -> float:
    """Bytes a second of all that is on units; ``drawn`` (U,): by each."""
    wanted = 0.0
    for unit in range(drawn.shape[0]):
        wanted += drawn[unit]
    return wanted

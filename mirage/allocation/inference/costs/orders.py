"""Orders of a layer's loops in time, by an array's dataflow: the input of the cost model.

The model could search all orders. That takes minutes per layer if it splits loops finely enough to fill small
memories; otherwise it misses the best by a factor of two. A dataflow states the inner loops; the outer loops are
tried in every order.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.allocation.inference.costs.arrays import Array, Inner, Mapped

Order = tuple[tuple[str, int], ...]
"""Loops and their numbers of steps, the innermost first."""


def orders(mapped: Mapped, array: Array) -> list[Order]:
    """Every order that the array's dataflows allow, each once."""
    steps = {loop: size // mapped.taken(loop) for loop, size in mapped.sizes.items()}
    found: dict[Order, None] = {}
    for dataflow in array.dataflows:
        inside, outside = _inside(dataflow, steps)
        left = [(loop, count) for loop, count in outside.items() if count > 1]
        found.update(dict.fromkeys((*inside, *order) for order in permutations(left)))
    return list(found)


def _inside(dataflow: tuple[Inner, ...], steps: dict[str, int]) -> tuple[Order, dict[str, int]]:
    """The inner loops of a dataflow, and the steps that are left for outside."""
    left = dict(steps)
    inside: list[tuple[str, int]] = []
    for inner in dataflow:
        room = inner.most
        for loop in inner.loops:
            tile = _largest_divisor(left[loop], room)
            if tile > 1:
                inside.append((loop, tile))
                left[loop], room = left[loop] // tile, room // tile
    return tuple(inside), left


def _largest_divisor(number: int, most: int) -> int:
    return next(divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)

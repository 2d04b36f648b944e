"""Places that all users share: once all are taken, the user who holds the most gives way. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

U = TypeVar("U", bound="Hashable")


def find_displaced(held: Mapping[U, int], newcomer: U) -> U | None:
    """Return the user who loses a place to ``newcomer`` where all are taken; ``None``: the newcomer gets none.

    ``held``: places by user. A user loses a place only to one who has at least two fewer, so that no two users
    take one place from each other in turn.
    """
    heaviest = max(held, key=held.__getitem__, default=newcomer)
    return heaviest if held.get(heaviest, 0) > held.get(newcomer, 0) + 1 else None


def divide_loss(held: Mapping[str, int], loss: int) -> dict[str, int]:
    """Return how many each user loses of ``held`` so that together they lose ``loss``, the heaviest users first.

    What they keep is levelled from above: no user loses any while another keeps more. Where the level does not
    divide evenly a few more are lost.
    """
    low, high = 0, max(held.values(), default=0)
    while low < high:  # the greatest level at which enough is lost
        level = (low + high + 1) // 2
        if sum(max(0, count - level) for count in held.values()) >= loss:
            low = level
        else:
            high = level - 1
    return {user: count - low for user, count in held.items() if count > low}


def find_surplus(held: Sequence[tuple[str, int]], most: int) -> list[int]:
    """Return the positions in ``held`` that have to go so that the sizes of the rest add up to ``most`` at most.

    ``held``: user and size of each thing, the oldest first. The heaviest users lose the oldest of theirs.
    """
    sizes: Counter[str] = Counter()
    for user, size in held:
        sizes[user] += size
    excess = sizes.total() - most
    if excess <= 0:
        return []
    left, lost = divide_loss(sizes, excess), list[int]()
    for position, (user, size) in enumerate(held):
        if left.get(user, 0) > 0:
            left[user] -= size
            lost.append(position)
    return lost

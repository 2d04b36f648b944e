"""Places for the names next to the marks of a scatter plot, so that they do not meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LETTER = 6.4
LINE = 15.0
MARK = 12.0
"""Width of a letter, height of a line, size of a mark: pixels, rounded up."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels, its origin at the lower left."""

    left: float
    bottom: float
    width: float
    height: float

    def meets(self, other: Box) -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.left + other.width
            and other.left < self.left + self.width
            and self.bottom < other.bottom + other.height
            and other.bottom < self.bottom + self.height
        )


def place_labels(points: Sequence[tuple[float, float]], names: Sequence[str]) -> list[tuple[float, float]]:
    """Offset in pixels of each name's lower left corner from its point (pixels, y upwards).

    Greedy: the first place around the mark that is free of marks and of the names already placed; above to
    the right where none is.
    """
    taken = [Box(x - MARK / 2, y - MARK / 2, MARK, MARK) for x, y in points]
    offsets = []
    for (x, y), name in zip(points, names, strict=True):
        width = LETTER * len(name)
        places = _places(width)
        boxes = [Box(x + dx, y + dy, width, LINE) for dx, dy in places]
        free = [i for i, box in enumerate(boxes) if not any(box.meets(other) for other in taken)]
        choice = free[0] if free else 0
        taken.append(boxes[choice])
        offsets.append(places[choice])
    return offsets


def _places(width: float) -> list[tuple[float, float]]:
    """Around the mark: right of it, then left of it, each above, below and level; then over and under it."""
    beside = [(dx, dy) for dx in (8.0, -8.0 - width) for dy in (4.0, -LINE - 2, -LINE / 2)]
    return [*beside, (-width / 2, 10.0), (-width / 2, -LINE - 10)]

"""Lanes with bars on them: what ran where and when.

A lane is a node or a device. A bar (class ``Piece``) is a link, or a task within an allocation. Bars that overlap
in time lie in separate rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.api.web.timeaxis import Axis


_SCREENS = (("all", 331), ("wide", 1_040))
"""Smallest width of a lane in pixels, by screen."""
_LETTER, _BESIDE = 6.8, 9
"""Width of a letter and margin of a label, in pixels."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A link or task on a lane, from ``start`` to ``end`` (epoch seconds)."""

    start: int
    end: int
    label: str
    short: str = ""
    """Short label, where the label does not fit."""
    kind: str = "run"
    """Style: ``run``, ``wait``, ``done``."""
    href: str = ""
    title: str = ""
    """Text alternative."""
    hue: int = 0
    """Number of the colour, from 1; 0: that of its kind."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A node or device with its bars."""

    name: str
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A drawn bar: x and width in percent."""

    piece: Piece
    x: float
    width: float
    row: int

    @property
    def fits(self) -> str:
        """Screens with room for the label: ``all``, ``wide``, ``none``."""
        needed = _LETTER * len(self.piece.label) + _BESIDE
        return next((name for name, pixels in _SCREENS if self.width * pixels / 100 >= needed), "none")


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """A drawn lane with its rows of bars."""

    lane: Lane
    bars: tuple[Bar, ...]
    rows: int


def draw_lane(lane: Lane, axis: Axis) -> DrawnLane:
    """Draw the bars of a lane on ``axis``; those outside are left out."""
    seen = sorted((piece for piece in lane.pieces if _seen(piece, axis)), key=lambda piece: piece.start)
    bars = tuple(_bars(seen, axis))
    return DrawnLane(lane, bars, max((bar.row for bar in bars), default=0) + 1)


def _bars(pieces: Iterable[Piece], axis: Axis) -> Iterable[Bar]:
    ends: list[int] = []
    for piece in pieces:
        row = next((row for row, end in enumerate(ends) if end <= piece.start), len(ends))
        ends[row:] = [piece.end, *ends[row + 1 :]]
        width = max(0.3, axis.width(piece.start, piece.end))
        yield Bar(piece, axis.at(piece.start), width, row)


def _seen(piece: Piece, axis: Axis) -> bool:
    return piece.end > axis.start and piece.start < axis.end

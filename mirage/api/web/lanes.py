"""Lanes with pieces on them: what ran where and when. The allocation's picture, and the small one of a chain.

A lane is a place (a node, an accelerator) and a piece what occupied it for a while (a link; within an allocation a
task). Pieces that overlap in time lie in rows of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.api.web.timeaxis import Axis


_SCREENS = (("all", 331), ("wide", 1_040))
"""How many pixels a lane has at least."""
_LETTER, _BESIDE = 6.8, 9
"""Pixels that a label takes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What occupied a lane from ``start`` to ``end``."""

    start: int
    end: int
    label: str
    short: str = ""
    """Stands for the label where that does not fit."""
    kind: str = "run"
    """How it is drawn: ``run``, ``wait``, ``done``."""
    href: str = ""
    title: str = ""
    """The whole of it in words."""
    hue: int = 0
    """Which of the colours, from 1; 0: that of its kind."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One place and what was there."""

    name: str
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece as it is drawn."""

    piece: Piece
    x: float
    width: float
    row: int

    @property
    def fits(self) -> str:
        """On which screens there is room for the label: ``all``, ``wide`` ones, ``none``."""
        needed = _LETTER * len(self.piece.label) + _BESIDE
        return next((name for name, pixels in _SCREENS if self.width * pixels / 100 >= needed), "none")


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """A lane as it is drawn."""

    lane: Lane
    bars: tuple[Bar, ...]
    rows: int


def draw_lane(lane: Lane, axis: Axis) -> DrawnLane:
    """The lane's pieces on ``axis``; those next to it are left out."""
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

"""Lanes with bars on them: what ran where and when; devices as lanes, tasks as bars.

A lane is a node or a device. A bar (class ``Piece``) is a link, or a task within an allocation. Bars that overlap
in time lie in separate rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.web.timeaxis import Axis, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.api.routes.tasks import TaskCountsDocument, TaskLaneDocument, TaskPieceDocument, TasksDocument

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


MOST_LANES = 64
"""Most lanes of one chain on the page."""
_HUES = 6
_KINDS = {"running": "ahead", "failed": "failed"}


@dataclass(frozen=True, slots=True)
class TaskShare:
    """A part of all tasks, as a segment of a strip."""

    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class TaskPicture:
    """The drawn tasks of one chain."""

    found: TasksDocument
    lanes: tuple[DrawnLane, ...]
    axis: Axis
    now_at: float
    shares: tuple[TaskShare, ...]
    further: int
    """Number of lanes not on the page."""


def draw_tasks(found: TasksDocument, now: int) -> TaskPicture:
    """Draw the tasks of one chain at ``now`` (epoch seconds)."""
    names = dict.fromkeys(piece.task for lane in found.lanes for piece in lane.pieces)
    hues = {name: 1 + number % _HUES for number, name in enumerate(names)}
    lanes = [_lane(lane, hues, now) for lane in found.lanes[:MOST_LANES]]
    axis = Axis.around([at for lane in lanes for piece in lane.pieces for at in (piece.start, piece.end)] + [now])
    return TaskPicture(
        found,
        tuple(draw_lane(lane, axis) for lane in lanes),
        axis,
        axis.at(now),
        _shares(found.counts),
        max(0, len(found.lanes) - MOST_LANES) + found.hidden_lanes,
    )


def place_of(lane: TaskLaneDocument) -> str:
    """Return the name of a device: node and index."""
    return lane.node if lane.device is None else f"{lane.node} : {lane.device}"


def _lane(lane: TaskLaneDocument, hues: dict[str, int], now: int) -> Lane:
    return Lane(place_of(lane), tuple(_piece(piece, hues[piece.task], now) for piece in lane.pieces))


def _piece(piece: TaskPieceDocument, hue: int, now: int) -> Piece:
    again = f", attempt {piece.attempt}" if piece.attempt > 1 else ""
    part = f", {piece.share:.0%} of the device" if piece.share < 1 else ""
    label = f"✕ {piece.task}" if piece.state == "failed" else piece.task
    return Piece(
        start=seconds_of(piece.start) or now,
        end=seconds_of(piece.end) or now,
        label=label,
        kind=_KINDS.get(piece.state, "ran"),
        title=f"{piece.task}{again}{part}: {piece.state}",
        hue=hue,
    )


def _shares(counts: TaskCountsDocument | None) -> tuple[TaskShare, ...]:
    if counts is None or not counts.total:
        return ()
    shares, x = [], 0.0
    for kind, number in (
        ("busy", counts.done),
        ("ahead", counts.running),
        ("rest", counts.waiting),
        ("gap", counts.failed + counts.skipped),
    ):
        width = 100 * number / counts.total
        shares.append(TaskShare(kind, round(x, 3), round(width, 3)))
        x += width
    return tuple(shares)

"""Draws devices as lanes, tasks as bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.web.lanes import DrawnLane, Lane, Piece, draw_lane
from mirage.api.web.timeaxis import Axis
from mirage.api.web.wording import seconds_of

if TYPE_CHECKING:
    from mirage.api.documents.tasks import TaskCounts, TaskLaneDocument, TaskPieceDocument, TasksDocument

MOST = 64
"""Most lanes of one chain on the page."""
_HUES = 6
_KINDS = {"running": "ahead", "failed": "failed"}


@dataclass(frozen=True, slots=True)
class Share:
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
    shares: tuple[Share, ...]
    further: int
    """Number of lanes not on the page."""


def draw_tasks(found: TasksDocument, now: int) -> TaskPicture:
    """Draw the tasks of one chain at ``now`` (epoch seconds)."""
    names = dict.fromkeys(piece.task for lane in found.lanes for piece in lane.pieces)
    hues = {name: 1 + number % _HUES for number, name in enumerate(names)}
    lanes = [_lane(lane, hues, now) for lane in found.lanes[:MOST]]
    axis = Axis.around([at for lane in lanes for piece in lane.pieces for at in (piece.start, piece.end)] + [now])
    return TaskPicture(
        found,
        tuple(draw_lane(lane, axis) for lane in lanes),
        axis,
        axis.at(now),
        _shares(found.counts),
        max(0, len(found.lanes) - MOST) + found.hidden_lanes,
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


def _shares(counts: TaskCounts | None) -> tuple[Share, ...]:
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
        shares.append(Share(kind, round(x, 3), round(width, 3)))
        x += width
    return tuple(shares)

"""``/allocation``: links on nodes over time, and the tasks within them."""

from __future__ import annotations

from fastapi import Request, Response

from mirage.api.documents.allocation import AllocationDocument, LaneDocument
from mirage.api.documents.me import MeDocument
from mirage.api.web.inquiry import Inquiry
from mirage.api.web.lanes import Lane, Piece, draw_lane
from mirage.api.web.rendering import render
from mirage.api.web.tasklanes import draw_tasks
from mirage.api.web.timeaxis import Axis
from mirage.api.web.wording import seconds_of

MOST = 256
"""Most lanes on the page."""
_HUES = 6


async def show_allocation(request: Request) -> Response:
    """Show the nodes of the caller's links and the tasks on them."""
    ask = Inquiry(request)
    me = await ask.get("/me", MeDocument)
    found = await ask.get("/allocation", AllocationDocument)
    now = seconds_of(found.time) or 0
    hues = _hues(found.lanes)
    lanes = [_lane(lane, hues, me, now) for lane in found.lanes[:MOST]]
    instants = [at for lane in lanes for piece in lane.pieces for at in (piece.start, piece.end)]
    axis = Axis.around([*instants, now])
    return await render(
        request,
        "allocation.html.j2",
        me,
        found=found,
        lanes=[draw_lane(lane, axis) for lane in lanes],
        hidden=max(0, len(found.lanes) - MOST),
        chains=sorted(hues),
        hues=hues,
        axis=axis,
        now_at=axis.at(now),
        pictures=[draw_tasks(each, now) for each in found.tasks],
    )


def _lane(lane: LaneDocument, hues: dict[str, int], me: MeDocument, now: int) -> Lane:
    return Lane(
        lane.name,
        tuple(
            Piece(
                start=seconds_of(piece.start) or now,
                end=seconds_of(piece.end) or now,
                label=piece.label,
                short=str(piece.link),
                kind="ahead" if piece.state == "running" else "ran",
                href=f"/chains/{piece.chain}",
                title=f"{piece.label}, {piece.state}",
                hue=hues[piece.chain],
            )
            for piece in lane.pieces
        ),
    )


def _hues(lanes: list[LaneDocument]) -> dict[str, int]:
    """Return a colour per chain, stable for the same set of chains; labels name the chain too."""
    chains = sorted({piece.chain for lane in lanes for piece in lane.pieces})
    return {chain: 1 + number % _HUES for number, chain in enumerate(chains)}

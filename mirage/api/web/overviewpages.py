"""Pages about the whole cluster: ``/``, ``/over``, ``/queue`` and ``/allocation``.

``/``: cluster, queue and active chains; ``/over``: finished chains; ``/queue``: the jobs of all users in the last
snapshot; ``/allocation``: links on nodes over time, and the tasks within them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Request, Response

from mirage.api.routes.account import MeDocument
from mirage.api.routes.administration import ProtectedMode
from mirage.api.routes.allocation import AllocationDocument, LaneDocument
from mirage.api.routes.chaindocuments import ChainDocument, ChainList, LinkDocument
from mirage.api.routes.cluster import ClusterDocument, QueueDocument
from mirage.api.web.internal_client import InternalClient
from mirage.api.web.lanes import Lane, Piece, draw_lane, draw_tasks
from mirage.api.web.picture import Stroke, chain_strokes
from mirage.api.web.rendering import render
from mirage.api.web.timeaxis import Axis, seconds_of

MOST = 256
"""Most lanes on the page."""
_HUES = 6


async def show_allocation(request: Request) -> Response:
    """Show the nodes of the caller's links and the tasks on them."""
    ask = InternalClient(request)
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


QUEUE_FILTERS = ("partition", "user", "state")
QUEUE_STATES = ("pending", "running")
QUEUE_ROWS = 100


async def show_queue(request: Request) -> Response:
    """Show one page of the queue."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    cluster = await ask.get("/cluster", ClusterDocument)
    given = {name: request.query_params.get(name, "").strip()[:64] for name in QUEUE_FILTERS}
    cursor = request.query_params.get("cursor")
    wanted = given | {"state": given["state"] if given["state"] in QUEUE_STATES else ""}
    found = await ask.get("/queue", QueueDocument, **wanted, limit=QUEUE_ROWS, cursor=cursor)
    return await render(
        request,
        "queue.html.j2",
        me,
        cluster=cluster,
        given=wanted,
        found=found,
        states=QUEUE_STATES,
        first=not cursor,
    )


MOST_CHAINS = 100
"""Chains per page."""
_WAITING = ("planned", "submitted", "pending")
_TROUBLE_FIRST = ("down", "failed", "paused", "starting")
"""Sort order of states; others follow."""


@dataclass(frozen=True, slots=True)
class ChainRow:
    """A chain as a row of the table."""

    chain: ChainDocument
    running: LinkDocument | None
    """The running link that ends last."""
    waiting: LinkDocument | None
    left: int | None
    """Remaining seconds of its time limit."""
    used: float
    """Used part of its time limit, in percent."""
    strokes: tuple[Stroke, ...]


async def show_overview(request: Request, cursor: Annotated[str | None, Query(max_length=400)] = None) -> Response:
    """Show active chains; ``cursor``: start of the page."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    chains = await ask.get(
        "/chains", ChainList, all=me.scope == "admin", live=True, limit=MOST_CHAINS, cursor=cursor
    )
    protection = await ask.get("/protected-mode", ProtectedMode)
    cluster = await ask.get("/cluster", ClusterDocument)
    now = seconds_of(chains.time) or 0
    axis = _axis(chains.chains, now)
    rows = [_row(chain, axis, now) for chain in sorted(chains.chains, key=_trouble)]
    going = [row.left for row in rows if row.left is not None and row.chain.status == "active"]
    return await render(
        request,
        "overview.html.j2",
        me,
        chains=chains,
        cluster=cluster,
        protection=protection,
        rows=rows,
        next_handover=min(going, default=None),
        over=cluster.chains.get("done", 0) + cluster.chains.get("stopped", 0),
        first=cursor is None,
        axis=axis,
        now_at=axis.at(now),
        sums=_sums(chains.chains),
    )


async def show_over(request: Request, cursor: Annotated[str | None, Query(max_length=400)] = None) -> Response:
    """Show chains that are done or stopped."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    over = ("done", "stopped")
    chains = await ask.get(
        "/chains", ChainList, all=me.scope == "admin", status=over, limit=MOST_CHAINS, cursor=cursor
    )
    return await render(request, "over.html.j2", me, chains=chains, first=cursor is None)


def _row(chain: ChainDocument, axis: Axis, now: int) -> ChainRow:
    running = max((link for link in chain.links if link.state == "running"), key=_end, default=None)
    waiting = next((link for link in reversed(chain.links) if link.state in _WAITING), None)
    start, end = (seconds_of(running.start), seconds_of(running.end)) if running else (None, None)
    left = max(0, end - now) if end is not None else None
    used = 100 * (now - start) / (end - start) if start is not None and end is not None and end > start else 0
    down_since = seconds_of(chain.since) if chain.state == "down" else None
    strokes = chain_strokes(chain.links, axis, now, down_since)
    return ChainRow(chain, running, waiting, left, round(min(100, max(0, used)), 2), strokes)


def _trouble(chain: ChainDocument) -> int:
    """Return the sort key: trouble first."""
    return _TROUBLE_FIRST.index(chain.state) if chain.state in _TROUBLE_FIRST else len(_TROUBLE_FIRST)


def _end(link: LinkDocument) -> str:
    return link.end or ""


def _axis(chains: list[ChainDocument], now: int) -> Axis:
    """Two link lengths back and one ahead, by the longest time limit."""
    longest = max((chain.request.limit for chain in chains), default=86_400)
    return Axis(now - 2 * longest, now + longest)


def _sums(chains: list[ChainDocument]) -> dict[str, int]:
    links = [link for chain in chains for link in chain.links]
    return {
        "running": sum(link.state == "running" for link in links),
        "waiting": sum(link.state in _WAITING for link in links),
        "handovers": sum(chain.handovers for chain in chains),
        "uninterrupted": sum(chain.uninterrupted for chain in chains),
        "interruption": sum(chain.interruption for chain in chains),
        "overlap": sum(chain.overlap for chain in chains),
        "saved": sum(chain.saved.p50 for chain in chains if chain.saved is not None),
        "saved_least": sum(chain.saved.p10 for chain in chains if chain.saved is not None),
        "saved_most": sum(chain.saved.p90 for chain in chains if chain.saved is not None),
        "appraised": sum(chain.appraised for chain in chains),
    }

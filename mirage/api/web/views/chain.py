"""``/chains/ID``: one chain with its link timeline, forecasts and journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Request, Response

from mirage.api.conventions.parameters import ChainName, LinkIndex
from mirage.api.conventions.threads import run_in_thread
from mirage.api.documents.chains import ChainDocument, Explanation
from mirage.api.documents.me import MeDocument
from mirage.api.documents.tasks import TasksDocument
from mirage.api.documents.timeline import ForecastPoint, LinkBar, Timeline
from mirage.api.web.fans import Fan, draw_fan
from mirage.api.web.inquiry import Inquiry
from mirage.api.web.picture import Handover, Life, Stroke, handovers
from mirage.api.web.rendering import render
from mirage.api.web.story import condense
from mirage.api.web.tasklanes import draw_tasks
from mirage.api.web.timeaxis import Axis
from mirage.api.web.wording import seconds_of

LANES = 8
"""Links per page."""
ENTRIES = 300
"""Journal entries read."""
FORECASTS = 40
"""Rows of the table of forecasts."""
_LONG_AGO = 86_400


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link as a lane of the timeline."""

    index: int
    bar: LinkBar | None
    """``None``: not submitted yet."""
    handover: Handover | None
    """Handover from the link before."""
    strokes: tuple[Stroke, ...]
    fan: Fan


async def show_chain(
    request: Request, chain_id: ChainName, before: Annotated[LinkIndex | None, Query()] = None
) -> Response:
    """Show one chain; ``before``: only links before this number."""
    ask = Inquiry(request)
    me = await ask.get("/me", MeDocument)
    chain = await ask.get(f"/chains/{chain_id}", ChainDocument)
    timeline = await ask.get(f"/chains/{chain.id}/timeline", Timeline)
    explained = await ask.get(f"/chains/{chain.id}/explain", Explanation, limit=ENTRIES)
    now = seconds_of(timeline.now) or 0
    tasks = await ask.get(f"/chains/{chain.id}/tasks", TasksDocument) if chain.tasks_state else None
    shown = _shown(timeline, before)
    axis = _axis(shown, now)
    picture = await run_in_thread(me.name, draw_tasks, tasks, now) if tasks else None
    return await render(
        request,
        "chain.html.j2",
        me,
        chain=chain,
        timeline=timeline,
        rows=_rows(timeline, shown, axis, now),
        axis=axis,
        now_at=axis.at(now) if axis.shows(now) else None,
        earlier=shown.bars[0].index if shown.bars and shown.bars[0].index > 1 else None,
        later=before is not None,
        forecasts=[point for point in timeline.forecasts if point.p50][:FORECASTS],
        picture=picture,
        story=condense(explained.entries),
    )


@dataclass(frozen=True, slots=True)
class _Shown:
    """The part of a timeline on the page."""

    bars: list[LinkBar]
    lives: dict[int, Life]
    forecasts: dict[int, list[ForecastPoint]]
    """Forecasts of the active predictor by link, oldest first; also for the next link."""


def _shown(timeline: Timeline, before: int | None) -> _Shown:
    bars = [bar for bar in timeline.links if before is None or bar.index < before][-LANES:]
    indices = {bar.index for bar in bars}
    if before is None and timeline.status == "active":
        indices.add(len(timeline.links) + 1)
    forecasts: dict[int, list[ForecastPoint]] = {index: [] for index in sorted(indices)}
    for point in reversed(timeline.forecasts):
        if not point.shadow and point.link in forecasts:
            forecasts[point.link].append(point)
    return _Shown(bars, {bar.index: Life.of(bar) for bar in bars}, forecasts)


def _rows(timeline: Timeline, shown: _Shown, axis: Axis, now: int) -> list[LinkRow]:
    """Return rows, oldest first; the next link is last if it has forecasts."""
    taken = {each.after.index: each for each in handovers([Life.of(bar) for bar in timeline.links])}
    rows = []
    for index, points in shown.forecasts.items():
        life = shown.lives.get(index)
        fan = draw_fan(points, axis)
        if life is not None or fan.rays:
            bar = next((bar for bar in shown.bars if bar.index == index), None)
            rows.append(LinkRow(index, bar, taken.get(index), _strokes(life, taken.get(index), axis, now), fan))
    return rows


def _strokes(life: Life | None, handover: Handover | None, axis: Axis, now: int) -> tuple[Stroke, ...]:
    strokes = list(life.strokes(axis, now)) if life else []
    return tuple(strokes + list(handover.strokes(axis) if handover else ()))


def _axis(shown: _Shown, now: int) -> Axis:
    instants = [instant for life in shown.lives.values() for instant in life.instants]
    for points in shown.forecasts.values():
        instants += [at for point in points[-1:] if (at := seconds_of(point.p90)) is not None]
    return Axis.around([*instants, now] if not instants or max(instants) > now - _LONG_AGO else instants)

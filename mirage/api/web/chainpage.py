"""``/chains/ID``: one chain with its link timeline, forecasts and journal.

The journal is condensed: entries repeated in each cycle are shown once, with their number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Query, Request, Response

from mirage.api.conventions.documents import ChainName, LinkIndex
from mirage.api.conventions.threads import run_in_thread
from mirage.api.routes.account import MeDocument
from mirage.api.routes.chaindocuments import ChainDocument, ExplanationDocument
from mirage.api.routes.tasks import TasksDocument
from mirage.api.routes.timeline import ForecastPoint, LinkBar, TimelineDocument
from mirage.api.web.internal_client import InternalClient
from mirage.api.web.lanes import draw_tasks
from mirage.api.web.picture import Fan, HandoverSpan, LinkTimes, Stroke, draw_fan, handovers
from mirage.api.web.rendering import render
from mirage.api.web.timeaxis import Axis, seconds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.api.routes.chaindocuments import EntryDocument

_NUMBERS = re.compile(r"[0-9]+")
_REPEATED = ("decision", "trouble")


@dataclass(slots=True)
class Passage:
    """The latest of ``times`` entries that differ only in numbers."""

    entry: EntryDocument
    first: str | None
    """Time of the earliest one."""
    times: int = 1


def condense(entries: Sequence[EntryDocument]) -> list[Passage]:
    """Condense a journal (newest first): drop entries of shadow predictors, fold repetitions."""
    told: list[Passage] = []
    for entry in entries:
        if entry.kind == "shadow":
            continue
        if told and _same(told[-1].entry, entry):
            told[-1].times += 1
            told[-1].first = entry.time
        else:
            told.append(Passage(entry, entry.time))
    return told


def _same(one: EntryDocument, other: EntryDocument) -> bool:
    return (
        one.kind == other.kind
        and one.kind in _REPEATED
        and one.link == other.link
        and one.predictor == other.predictor
        and _NUMBERS.sub("", one.text) == _NUMBERS.sub("", other.text)
    )


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
    handover: HandoverSpan | None
    """Handover from the link before."""
    strokes: tuple[Stroke, ...]
    fan: Fan


async def show_chain(
    request: Request, chain_id: ChainName, before: Annotated[LinkIndex | None, Query()] = None
) -> Response:
    """Show one chain; ``before``: only links before this number."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    chain = await ask.get(f"/chains/{chain_id}", ChainDocument)
    timeline = await ask.get(f"/chains/{chain.id}/timeline", TimelineDocument)
    explained = await ask.get(f"/chains/{chain.id}/explain", ExplanationDocument, limit=ENTRIES)
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
    lives: dict[int, LinkTimes]
    forecasts: dict[int, list[ForecastPoint]]
    """Forecasts of the active predictor by link, oldest first; also for the next link."""


def _shown(timeline: TimelineDocument, before: int | None) -> _Shown:
    bars = [bar for bar in timeline.links if before is None or bar.index < before][-LANES:]
    indices = {bar.index for bar in bars}
    if before is None and timeline.status == "active":
        indices.add(len(timeline.links) + 1)
    forecasts: dict[int, list[ForecastPoint]] = {index: [] for index in sorted(indices)}
    for point in reversed(timeline.forecasts):
        if not point.shadow and point.link in forecasts:
            forecasts[point.link].append(point)
    return _Shown(bars, {bar.index: LinkTimes.of(bar) for bar in bars}, forecasts)


def _rows(timeline: TimelineDocument, shown: _Shown, axis: Axis, now: int) -> list[LinkRow]:
    """Return rows, oldest first; the next link is last if it has forecasts."""
    taken = {each.after.index: each for each in handovers([LinkTimes.of(bar) for bar in timeline.links], now)}
    rows = []
    for index, points in shown.forecasts.items():
        life = shown.lives.get(index)
        fan = draw_fan(points, axis)
        if life is not None or fan.rays:
            bar = next((bar for bar in shown.bars if bar.index == index), None)
            rows.append(LinkRow(index, bar, taken.get(index), _strokes(life, taken.get(index), axis, now), fan))
    return rows


def _strokes(life: LinkTimes | None, handover: HandoverSpan | None, axis: Axis, now: int) -> tuple[Stroke, ...]:
    strokes = list(life.strokes(axis, now)) if life else []
    return tuple(strokes + list(handover.strokes(axis) if handover else ()))


def _axis(shown: _Shown, now: int) -> Axis:
    instants = [instant for life in shown.lives.values() for instant in life.instants]
    for points in shown.forecasts.values():
        instants += [at for point in points[-1:] if (at := seconds_of(point.p90)) is not None]
    return Axis.around([*instants, now] if not instants or max(instants) > now - _LONG_AGO else instants)

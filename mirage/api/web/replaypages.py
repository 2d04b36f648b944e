"""``/replays``: simulations of submission policies on past load, with progress and results."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import Request, Response
from pydantic import BaseModel

from mirage.api.conventions.documents import Word
from mirage.api.routes.account import MeDocument
from mirage.api.routes.replays import ReplayDocument, ReplayList
from mirage.api.web.internal_client import InternalClient
from mirage.api.web.rendering import render

PRESET = "generated:demo:1"
"""Generated trace, listed with the files."""
_ALL = "all"
_LEAST = 0.25
"""Smallest range of the chart, in hours."""


class ShownEstimate(BaseModel):
    """A statistic with its confidence interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


class PolicyRow(BaseModel):
    """Results of one policy in one class of load, as in ``mirage replay --json``; hours and shares."""

    policy: str
    load: str
    pairs: int
    interruption_mean: ShownEstimate
    interruption_p90: ShownEstimate
    overlap_mean: ShownEstimate
    distance_mean: ShownEstimate
    uninterrupted_share: ShownEstimate
    reduction: ShownEstimate | None


class Metrics(BaseModel):
    """Results of a replay."""

    episodes: int
    pairs_left_out: int
    rows: list[PolicyRow]


class ShownResult(BaseModel):
    """The displayed part of a replay's result."""

    notes: list[str] = []
    metrics: Metrics


class ShownReplay(ReplayDocument):
    """A replay with only the displayed part of its result, so that large results are not parsed into objects."""

    result: ShownResult | None


@dataclass(frozen=True, slots=True)
class PolicyBars:
    """Bars of a policy: mean overlap to the left of the middle, mean interruption to the right."""

    row: PolicyRow
    overlap: float
    interruption: float
    """Percents of the width."""


async def show_replays(request: Request) -> Response:
    """Show all replays, and the form that starts one."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    found = await ask.get("/replays", ReplayList)
    return await render(request, "replays.html.j2", me, found=found, traces=[PRESET, *found.files])


async def show_replay(request: Request, replay_id: Word) -> Response:
    """Show one replay and its result."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    replay = await ask.get(f"/replays/{replay_id}", ShownReplay)
    result = replay.result
    bars, scale = _bars(result.metrics.rows) if result else ([], _LEAST)
    return await render(
        request, "replay.html.j2", me, replay=replay, result=result, bars=bars, scale=scale, took=_took(replay)
    )


def _bars(rows: list[PolicyRow]) -> tuple[list[PolicyBars], float]:
    """Return the bars of all policies on all load, and the hours from the middle to an end."""
    shown = [row for row in rows if row.load == _ALL]
    scale = max([_LEAST, *(_hours(each) for row in shown for each in (row.overlap_mean, row.interruption_mean))])
    return [
        PolicyBars(row, _part(row.overlap_mean, scale), _part(row.interruption_mean, scale)) for row in shown
    ], scale


def _hours(estimate: ShownEstimate) -> float:
    return estimate.value or 0.0


def _part(estimate: ShownEstimate, scale: float) -> float:
    return round(49 * _hours(estimate) / scale, 2)


def _took(replay: ReplayDocument) -> timedelta | None:
    if not replay.started or not replay.ended:
        return None
    return datetime.fromisoformat(replay.ended) - datetime.fromisoformat(replay.started)

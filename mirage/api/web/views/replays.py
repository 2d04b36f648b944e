"""``/replays``: what submission policies would have made of past load; their progress and what came of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import Request, Response
from pydantic import BaseModel

from mirage.api.conventions.parameters import Word
from mirage.api.documents.me import MeDocument
from mirage.api.documents.replays import ReplayDocument, ReplayList
from mirage.api.web.inquiry import Inquiry
from mirage.api.web.rendering import render

PRESET = "generated:demo:1"
"""Offered next to the files."""
_ALL = "all"
_LEAST = 0.25
"""Hours that the picture shows at least."""


class Estimate(BaseModel):
    """A statistic with the interval in which it lies."""

    value: float | None
    low: float | None = None
    high: float | None = None


class PolicyRow(BaseModel):
    """One policy on the handovers of one class of load, as ``mirage replay --json`` has it; hours and shares."""

    policy: str
    load: str
    pairs: int
    interruption_mean: Estimate
    interruption_p90: Estimate
    overlap_mean: Estimate
    distance_mean: Estimate
    uninterrupted_share: Estimate
    reduction: Estimate | None


class Metrics(BaseModel):
    """What a replay measured."""

    episodes: int
    pairs_left_out: int
    rows: list[PolicyRow]


class Result(BaseModel):
    """The part of a replay's document that is shown."""

    notes: list[str] = []
    metrics: Metrics


class ShownReplay(ReplayDocument):
    """A replay without what the page leaves out: of a large result no objects are made."""

    result: Result | None


@dataclass(frozen=True, slots=True)
class PolicyBars:
    """A policy with its mean overlap to the left of the middle and its mean interruption to the right."""

    row: PolicyRow
    overlap: float
    interruption: float
    """Percents of the width."""


async def show_replays(request: Request) -> Response:
    """All that are kept, and the form that starts one."""
    ask = Inquiry(request)
    me = await ask.get("/me", MeDocument)
    found = await ask.get("/replays", ReplayList)
    return await render(request, "replays.html.j2", me, found=found, traces=[PRESET, *found.files])


async def show_replay(request: Request, replay_id: Word) -> Response:
    """One with what came of it."""
    ask = Inquiry(request)
    me = await ask.get("/me", MeDocument)
    replay = await ask.get(f"/replays/{replay_id}", ShownReplay)
    result = replay.result
    bars, scale = _bars(result.metrics.rows) if result else ([], _LEAST)
    return await render(
        request, "replay.html.j2", me, replay=replay, result=result, bars=bars, scale=scale, took=_took(replay)
    )


def _bars(rows: list[PolicyRow]) -> tuple[list[PolicyBars], float]:
    """Every policy on all load, and how many hours lie between the middle and an end."""
    shown = [row for row in rows if row.load == _ALL]
    scale = max([_LEAST, *(_hours(each) for row in shown for each in (row.overlap_mean, row.interruption_mean))])
    return [
        PolicyBars(row, _part(row.overlap_mean, scale), _part(row.interruption_mean, scale)) for row in shown
    ], scale


def _hours(estimate: Estimate) -> float:
    return estimate.value or 0.0


def _part(estimate: Estimate, scale: float) -> float:
    return round(49 * _hours(estimate) / scale, 2)


def _took(replay: ReplayDocument) -> timedelta | None:
    if not replay.started or not replay.ended:
        return None
    return datetime.fromisoformat(replay.ended) - datetime.fromisoformat(replay.started)

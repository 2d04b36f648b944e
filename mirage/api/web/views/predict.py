"""``/predict``: predicted start of a job, with past errors."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request, Response

from mirage.api.documents.cluster import ClusterDocument
from mirage.api.documents.me import MeDocument
from mirage.api.documents.predictions import Prediction, PredictionList
from mirage.api.web.inquiry import Inquiry, Refused
from mirage.api.web.rendering import render
from mirage.api.web.timeaxis import Axis
from mirage.api.web.wording import seconds_of

FIELDS = ("limit", "nodes", "partition", "gres", "account", "qos", "predictor")
_STARTING = {"limit": "24h", "nodes": "1"}
_FORM_FAULTS = (404, 409, 422)
"""Statuses of an invalid form."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One forecast as a ray on the axis."""

    said: Prediction
    x1: float
    x2: float
    middle: float | None


async def show_predict(request: Request) -> Response:
    """Show the form, and predictions if it was submitted."""
    ask = Inquiry(request)
    me = await ask.get("/me", MeDocument)
    cluster = await ask.get("/cluster", ClusterDocument)
    given = {name: request.query_params.get(name, "").strip()[:300] for name in FIELDS}
    found, fault = await _answer(ask, given)
    axis = _axis(found) if found else None
    return await render(
        request,
        "predict.html.j2",
        me,
        200 if not fault else 422,
        cluster=cluster,
        given={name: text or _STARTING.get(name, "") for name, text in given.items()},
        found=found,
        fault=fault,
        axis=axis,
        rows=[_row(said, axis) for said in found.predictions] if found and axis else [],
    )


async def _answer(ask: Inquiry, given: dict[str, str]) -> tuple[PredictionList | None, str]:
    """Return predictions, or the error of an invalid form; neither before it was submitted."""
    if not given["limit"]:
        return None, ""
    query = {name: text or None for name, text in given.items()}
    if given["limit"].isdecimal():  # the API takes seconds, sbatch minutes
        query["limit"] = f"{given['limit']}m"
    try:
        return await ask.get("/predictions", PredictionList, **query), ""
    except Refused as refused:
        if refused.status not in _FORM_FAULTS:
            raise
        return None, str(refused).removeprefix("query.")


def _axis(found: PredictionList) -> Axis:
    now = seconds_of(found.snapshot) or 0
    ends = [
        seconds_of(text) for said in found.predictions for text in (said.start_p10, said.start_p50, said.start_p90)
    ]
    return Axis.around([now, now + 600, *(end for end in ends if end is not None)], 0.04)


def _row(said: Prediction, axis: Axis) -> Foreseen:
    middle = seconds_of(said.start_p50)
    low, high = seconds_of(said.start_p10), seconds_of(said.start_p90)
    known = [at for at in (low, middle, high) if at is not None]
    if not known:
        return Foreseen(said, 0, 0, None)
    return Foreseen(
        said, axis.at(min(known)), axis.at(max(known)), axis.at(middle) if middle is not None else None
    )

"""Predictions: ``/predict`` has the predicted start of a job, ``/predictors`` errors, costs and trained models.

Errors and costs are those of active and shadow predictors; a prediction is shown with past errors.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request, Response

from mirage.api.routes.account import MeDocument
from mirage.api.routes.cluster import ClusterDocument
from mirage.api.routes.predictions import Prediction, PredictionList
from mirage.api.routes.predictors import (
    PredictorDocument,
    PredictorList,
    ShadowResultDocument,
    ShadowResultsDocument,
)
from mirage.api.web import calibration
from mirage.api.web.calibration import Curve, draw_curve
from mirage.api.web.internal_client import InternalClient, Refused
from mirage.api.web.rendering import render
from mirage.api.web.timeaxis import Axis, seconds_of

FORM_FIELDS = ("limit", "nodes", "partition", "gres", "account", "qos", "predictor")
_STARTING = {"limit": "24h", "nodes": "1"}
_FORM_FAULTS = (404, 409, 422)
"""Statuses of an invalid form."""


@dataclass(frozen=True, slots=True)
class PredictionRay:
    """One forecast as a ray on the axis."""

    said: Prediction
    x1: float
    x2: float
    middle: float | None


async def show_predict(request: Request) -> Response:
    """Show the form, and predictions if it was submitted."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    cluster = await ask.get("/cluster", ClusterDocument)
    given = {name: request.query_params.get(name, "").strip()[:300] for name in FORM_FIELDS}
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
        rows=[_prediction_ray(said, axis) for said in found.predictions] if found and axis else [],
    )


async def _answer(ask: InternalClient, given: dict[str, str]) -> tuple[PredictionList | None, str]:
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


def _prediction_ray(said: Prediction, axis: Axis) -> PredictionRay:
    middle = seconds_of(said.start_p50)
    low, high = seconds_of(said.start_p10), seconds_of(said.start_p90)
    known = [at for at in (low, middle, high) if at is not None]
    if not known:
        return PredictionRay(said, 0, 0, None)
    return PredictionRay(
        said, axis.at(min(known)), axis.at(max(known)), axis.at(middle) if middle is not None else None
    )


_FEW = 0.05
"""Smallest range of the gain scale, in hours."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A gain ± 2 standard errors, in percent of a scale with 0 in the middle."""

    x1: float
    x2: float
    middle: float


@dataclass(frozen=True, slots=True)
class PredictorRow:
    """One predictor: its role, and its results in one partition."""

    name: str
    """Name without the directory of a trained model."""
    at_work: PredictorDocument | None
    measured: ShadowResultDocument | None
    gain: Interval | None
    curve: Curve | None
    """Calibration; ``None``: no completed forecasts."""

    @property
    def where(self) -> str:
        """Partition of the handovers, in words."""
        if self.measured is None:
            return "all partitions" if self.curve else ""
        return self.measured.partition or "unknown partition"

    @property
    def roles(self) -> list[str]:
        """Displayed roles of the predictor."""
        if self.at_work is None:
            return ["set by chains"] if self.measured and self.measured.in_charge else []
        known = {
            "active": self.at_work.in_charge,
            "shadow": self.at_work.shadow,
            "fallback": self.at_work.fallback,
        }
        return [role for role, holds in known.items() if holds]


async def show_predictors(request: Request) -> Response:
    """Show predictors, their calibration and the trained models."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    found = await ask.get("/predictors", PredictorList)
    results = await ask.get("/predictors/shadow", ShadowResultsDocument)
    scale = _scale(results.predictors)
    rows = _rows(found, results.predictors, scale)
    return await render(
        request,
        "predictors.html.j2",
        me,
        found=found,
        rows=rows,
        scale=scale,
        square=calibration,
        levels=sorted({point.level for row in rows if row.curve for point in row.curve.points}),
    )


def _rows(found: PredictorList, results: list[ShadowResultDocument], scale: float) -> list[PredictorRow]:
    """Return configured predictors, then others with results; one row per partition with results."""
    at_work = {_short(each.name): each for each in found.predictors}
    measured: dict[str, list[ShadowResultDocument]] = {}
    for result in results:
        measured.setdefault(_short(result.predictor), []).append(result)
    return [
        _row(name, at_work.get(name), result, scale)
        for name in {**at_work, **measured}
        for result in measured.get(name) or (None,)
    ]


def _row(
    name: str, at_work: PredictorDocument | None, measured: ShadowResultDocument | None, scale: float
) -> PredictorRow:
    curve = draw_curve(measured.calibration if measured else at_work.calibration if at_work else [])
    return PredictorRow(name, at_work, measured, _interval(measured, scale), curve)


def _short(name: str) -> str:
    """``xgboost:/var/lib/mirage/models/xgboost`` is ``xgboost``; the models table has its version."""
    kind, _, rest = name.partition(":")
    return kind if rest.startswith("/") else name


def _scale(results: list[ShadowResultDocument]) -> float:
    """Return hours from the middle of the gain scale to its ends."""
    return max([_FEW, *(abs(each.gain) + 2 * (each.gain_error or 0) for each in results if each.gain is not None)])


def _interval(result: ShadowResultDocument | None, scale: float) -> Interval | None:
    if result is None or result.gain is None or result.in_charge:
        return None
    error = 2 * (result.gain_error or 0)
    x1, middle, x2 = (
        round(50 + 48 * at / scale, 2) for at in (result.gain - error, result.gain, result.gain + error)
    )
    return Interval(x1, x2, middle)

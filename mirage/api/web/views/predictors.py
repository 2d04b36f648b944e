"""``/predictors``: errors and costs of active and shadow predictors, and trained models."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request, Response

from mirage.api.documents.me import MeDocument
from mirage.api.documents.predictors import PredictorDocument, PredictorList, ShadowResult, ShadowResults
from mirage.api.web import calibration
from mirage.api.web.calibration import Curve, draw_curve
from mirage.api.web.inquiry import Inquiry
from mirage.api.web.rendering import render

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
    measured: ShadowResult | None
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
    ask = Inquiry(request)
    me = await ask.get("/me", MeDocument)
    found = await ask.get("/predictors", PredictorList)
    results = await ask.get("/predictors/shadow", ShadowResults)
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


def _rows(found: PredictorList, results: list[ShadowResult], scale: float) -> list[PredictorRow]:
    """Return configured predictors, then others with results; one row per partition with results."""
    at_work = {_short(each.name): each for each in found.predictors}
    measured: dict[str, list[ShadowResult]] = {}
    for result in results:
        measured.setdefault(_short(result.predictor), []).append(result)
    return [
        _row(name, at_work.get(name), result, scale)
        for name in {**at_work, **measured}
        for result in measured.get(name) or (None,)
    ]


def _row(
    name: str, at_work: PredictorDocument | None, measured: ShadowResult | None, scale: float
) -> PredictorRow:
    curve = draw_curve(measured.calibration if measured else at_work.calibration if at_work else [])
    return PredictorRow(name, at_work, measured, _interval(measured, scale), curve)


def _short(name: str) -> str:
    """``xgboost:/var/lib/mirage/models/xgboost`` is ``xgboost``; the models table has its version."""
    kind, _, rest = name.partition(":")
    return kind if rest.startswith("/") else name


def _scale(results: list[ShadowResult]) -> float:
    """Return hours from the middle of the gain scale to its ends."""
    return max([_FEW, *(abs(each.gain) + 2 * (each.gain_error or 0) for each in results if each.gain is not None)])


def _interval(result: ShadowResult | None, scale: float) -> Interval | None:
    if result is None or result.gain is None or result.in_charge:
        return None
    error = 2 * (result.gain_error or 0)
    x1, middle, x2 = (
        round(50 + 48 * at / scale, 2) for at in (result.gain - error, result.gain, result.gain + error)
    )
    return Interval(x1, x2, middle)

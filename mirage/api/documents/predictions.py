"""Predicted starts of a job, and the past errors of the predictors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeGuard

from mirage.api.conventions.described import Described
from mirage.api.documents.instants import instant
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.control.questions import Foresight, Said
    from mirage.domain.decision import WaitForecast
    from mirage.domain.job import JobRequest, Seconds
    from mirage.replay.shadows import Measured

ENOUGH = 5
"""Fewer forecasts of a class of jobs than this give no statistics."""
_HOUR = 3_600


class Shape(Described):
    """Requested resources of a job."""

    partition: str
    """Partition; empty: the default."""
    nodes: int
    """Number of nodes."""
    limit: int
    """Time limit in seconds."""
    gres_per_node: dict[str, int]
    """Generic resources by name."""
    account: str
    """Account; empty: the user's default."""
    qos: str
    """QOS; empty: the default."""


class PastError(Described):
    """Forecasts made at submissions of links, compared with the actual starts."""

    of: str
    """Handovers covered: ``such jobs in partition v100``, ``partition v100``, ``all partitions``."""
    forecasts: int
    """Number of forecasts with an actual start."""
    bias: int | None
    """Median of actual start minus predicted median; above 0: jobs start later than predicted."""
    absolute_error: int | None
    """Mean absolute error of the median."""
    pinball: int | None
    """Mean quantile loss over all levels."""
    coverage: float | None
    """Share of starts between P10 and P90; ideal: 0.8."""


class Prediction(Described):
    """Prediction of one predictor. Waits count from the time of the snapshot."""

    predictor: str
    """Name of the predictor."""
    role: str
    """``in charge``: active; ``instead``: fallback that answered; ``shadow``; ``named`` in the request."""
    start_p10: str | None
    """P10 of the start."""
    start_p50: str | None
    """Median start."""
    start_p90: str | None
    """P90 of the start."""
    wait_p10: int | None
    """P10 of the wait, in seconds."""
    wait_p50: int | None
    """Median wait, in seconds."""
    wait_p90: int | None
    """P90 of the wait, in seconds."""
    trouble: str
    """Why it gives no prediction; empty: it does."""
    basis: str
    """Data behind it, such as ``12 waits of partition v100, any size``; empty: not reported."""
    past: PastError | None
    """Error on the handovers of the last 30 days in this partition; ``null``: no forecasts."""
    past_alike: PastError | None
    """The same for jobs of similar size and time limit; ``null``: too few."""


class PredictionList(Described):
    """Predictions of all predictors for one job."""

    now: str | None
    """Current time of Slurm's clock."""
    snapshot: str | None
    """Time of the snapshot behind the predictions."""
    snapshot_age: int
    """Age of the snapshot in seconds."""
    stale_since: str | None
    """Time of the last answer of the cluster; ``null``: it answers now."""
    shape: Shape
    """The requested job."""
    planned_start: str | None
    """Start planned by Slurm for such a job, if a predictor queried it."""
    predictions: list[Prediction]
    """Predictions, that of the active predictor first."""


def prediction_list(
    request: JobRequest,
    found: Foresight,
    now: Seconds,
    past: Mapping[str, Measured],
    alike: Mapping[str, Measured],
) -> PredictionList:
    """Return the response to a prediction request; ``past`` and ``alike``: errors in its partition."""
    return PredictionList(
        now=instant(now),
        snapshot=instant(found.time),
        snapshot_age=max(0, now - found.time),
        stale_since=instant(found.stale_since),
        shape=shape_of(request),
        planned_start=instant(found.planned_start.start),
        predictions=[
            _prediction(said, found, past.get(said.predictor), alike.get(said.predictor)) for said in found.said
        ],
    )


def shape_of(request: JobRequest) -> Shape:
    """Return the requested resources."""
    return Shape(
        partition=request.partition,
        nodes=request.nodes,
        limit=request.limit,
        gres_per_node=dict(request.gres_per_node),
        account=request.account,
        qos=request.qos,
    )


def quantiles(forecast: WaitForecast | None) -> tuple[Seconds, Seconds, Seconds]:
    """Return P10, P50 and P90 of the start; ``ABSENT`` where a forecast is a rule or has no such level."""
    if forecast is None or forecast.rule:
        return ABSENT, ABSENT, ABSENT
    only = forecast.levels[0] if len(forecast.starts) == 1 else None
    p10, p50, p90 = (round(forecast.at(level)) if only in (None, level) else ABSENT for level in (0.1, 0.5, 0.9))
    return p10, p50, p90


def _prediction(said: Said, found: Foresight, past: Measured | None, alike: Measured | None) -> Prediction:
    time, where = found.time, f"partition {found.partition}" if found.partition else "unknown partition"
    p10, p50, p90 = quantiles(said.forecast)
    return Prediction(
        predictor=said.predictor,
        role=said.role,
        start_p10=instant(p10),
        start_p50=instant(p50),
        start_p90=instant(p90),
        wait_p10=_wait(p10, time),
        wait_p50=_wait(p50, time),
        wait_p90=_wait(p90, time),
        trouble=said.trouble,
        basis=said.forecast.basis if said.forecast is not None else "",
        past=past_error(past, where) if past is not None and past.forecasts else None,
        past_alike=past_error(alike, f"such jobs in {where}") if _enough(alike) else None,
    )


def _enough(alike: Measured | None) -> TypeGuard[Measured]:
    return alike is not None and alike.forecasts >= ENOUGH


def past_error(measured: Measured, of: str = "all partitions") -> PastError:
    """Return past errors, converted from hours to seconds."""
    return PastError(
        of=of,
        forecasts=measured.forecasts,
        bias=_seconds(measured.error),
        absolute_error=_seconds(measured.absolute_error),
        pinball=_seconds(measured.pinball),
        coverage=None if math.isnan(measured.coverage) else measured.coverage,
    )


def _wait(start: Seconds, time: Seconds) -> int | None:
    return max(0, start - time) if start != ABSENT else None


def _seconds(hours: float) -> int | None:
    return None if math.isnan(hours) else round(hours * _HOUR)

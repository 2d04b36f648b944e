"""When a job would start, as the predictors predict it, and how well they have predicted starts before."""

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
"""Forecasts of a class below which nothing is said of it."""
_HOUR = 3_600


class Shape(Described):
    """What a job asks for, as far as it is known."""

    partition: str
    """Empty: the default one."""
    nodes: int
    """How many."""
    limit: int
    """Time limit."""
    gres_per_node: dict[str, int]
    """Generic resources by name."""
    account: str
    """Empty: the user's default one."""
    qos: str
    """Empty: the default one."""


class PastError(Described):
    """Forecasts as links were really submitted, against their real starts."""

    of: str
    """At which handovers: ``such jobs in partition v100``, ``partition v100``, ``all partitions``."""
    forecasts: int
    """How many have met their starts."""
    bias: int | None
    """Median of start less predicted median: above 0, jobs start later than predicted."""
    absolute_error: int | None
    """Mean."""
    pinball: int | None
    """Mean quantile loss over all levels."""
    coverage: float | None
    """Share of starts within P10 to P90; 0.8 is right."""


class Prediction(Described):
    """What one predictor predicts. Waits are counted from the snapshot's time."""

    predictor: str
    """Who predicts it."""
    role: str
    """``in charge``; ``instead``: a fallback that answered, as the one above failed; ``shadow``; ``named``."""
    start_p10: str | None
    """One in ten such jobs starts no later."""
    start_p50: str | None
    """The median."""
    start_p90: str | None
    """Nine in ten start no later."""
    wait_p10: int | None
    """One in ten waits no longer."""
    wait_p50: int | None
    """The median."""
    wait_p90: int | None
    """Nine in ten wait no longer."""
    trouble: str
    """Why it predicts nothing; empty: it does."""
    basis: str
    """What it rests on, such as ``12 waits of partition v100, any size``; empty: it does not say."""
    past: PastError | None
    """On the handovers of the last 30 days in this partition; ``null``: it was never asked at one."""
    past_alike: PastError | None
    """On those of jobs of about this size and limit as well, where there are enough."""


class PredictionList(Described):
    """One job, all predictors."""

    now: str | None
    """By Slurm's clock."""
    snapshot: str | None
    """When the cluster was looked at, on which all of it rests."""
    snapshot_age: int
    """Seconds since then."""
    stale_since: str | None
    """When the cluster last answered, where it does not answer now."""
    shape: Shape
    """The job that was asked about."""
    planned_start: str | None
    """Slurm's own plan for such a job, where a predictor asked for it."""
    predictions: list[Prediction]
    """The one in charge first."""


def prediction_list(
    request: JobRequest,
    found: Foresight,
    now: Seconds,
    past: Mapping[str, Measured],
    alike: Mapping[str, Measured],
) -> PredictionList:
    """The answer to one question; ``past`` and ``alike`` are of handovers in its partition."""
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
    """What a request asks for."""
    return Shape(
        partition=request.partition,
        nodes=request.nodes,
        limit=request.limit,
        gres_per_node=dict(request.gres_per_node),
        account=request.account,
        qos=request.qos,
    )


def quantiles(forecast: WaitForecast | None) -> tuple[Seconds, Seconds, Seconds]:
    """The start at P10, P50 and P90; ``ABSENT`` where none is predicted, as by a rule, or one time alone is."""
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
    """In seconds."""
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

"""``/api/v1/predictions``: predicted start of a job submitted now, and past errors of the predictors.

The server's event loop asks the predictors here, also for other routes.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeGuard

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from mirage.api.access.dependencies import Reader
from mirage.api.conventions.documents import Described, SentDocument, instant
from mirage.api.conventions.problems import BadDocument, Busy
from mirage.api.conventions.threads import query, run_in_thread
from mirage.control.guard import Asker
from mirage.control.prediction_requests import PredictionRequest, TooManyPredictionRequests
from mirage.domain.errors import BadSpelling, StoreUnavailable
from mirage.domain.job import ABSENT, UNLIMITED, BatchScript, JobRequest
from mirage.slurm.duration import parse_human_limit
from mirage.slurm.tres import parse_gres

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.api.port import ApiService, Inquiries
    from mirage.control.prediction_requests import PredictionResult, PredictorReply
    from mirage.domain.decision import WaitForecast
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot
    from mirage.replay.shadows import ShadowScore


def inquiries_of(service: ApiService) -> Inquiries:
    """Return the prediction service. Raises ``StoreUnavailable`` without one."""
    if service.inquiries is None:
        raise StoreUnavailable("this daemon takes no prediction requests")
    return service.inquiries


async def foreseen(service: ApiService, question: PredictionRequest) -> PredictionResult:
    """Return the result. Raises ``Busy``, ``ClusterUnavailable`` and ``HTTPException`` (503: overload)."""
    try:
        promise = inquiries_of(service).ask(question)
        # Not cancelled: others may wait for the same result.
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(promise)), service.patience)
    except TooManyPredictionRequests as error:  # immediately, or displaced by others
        raise HTTPException(503, str(error), {"Retry-After": "10"}) from None
    except TimeoutError:
        raise Busy(f"no answer from the decision loop for {service.patience:g} s; retry later") from None


def check_fits(request: JobRequest, snapshot: Snapshot) -> None:
    """Raise ``BadDocument`` for unknown partitions, or more nodes than any of them has."""
    sizes = {partition.name: partition.total for partition in snapshot.partitions}
    if not sizes:
        return
    named = request.partition.split(",") if request.partition else list(sizes)
    if (unknown := next((name for name in named if name not in sizes), None)) is not None:
        raise BadDocument(f"query.partition: there is no partition {unknown!r}; there are {', '.join(sizes)}")
    most = max(sizes[name] for name in named)
    if request.nodes > most:
        where = f"partition {request.partition}" if request.partition else "the largest partition"
        raise BadDocument(f"query.nodes: {where} has {most} nodes")


ENOUGH = 5
"""Fewer forecasts of a class of jobs than this give no statistics."""
_HOUR = 3_600


class JobShape(Described):
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


class PastErrorDocument(Described):
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
    past: PastErrorDocument | None
    """Error on the handovers of the last 30 days in this partition; ``null``: no forecasts."""
    past_alike: PastErrorDocument | None
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
    shape: JobShape
    """The requested job."""
    planned_start: str | None
    """Start planned by Slurm for such a job, if a predictor queried it."""
    predictions: list[Prediction]
    """Predictions, that of the active predictor first."""


def prediction_list(
    request: JobRequest,
    found: PredictionResult,
    now: Seconds,
    past: Mapping[str, ShadowScore],
    alike: Mapping[str, ShadowScore],
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


def shape_of(request: JobRequest) -> JobShape:
    """Return the requested resources."""
    return JobShape(
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


def _prediction(
    said: PredictorReply, found: PredictionResult, past: ShadowScore | None, alike: ShadowScore | None
) -> Prediction:
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


def _enough(alike: ShadowScore | None) -> TypeGuard[ShadowScore]:
    return alike is not None and alike.forecasts >= ENOUGH


def past_error(measured: ShadowScore, of: str = "all partitions") -> PastErrorDocument:
    """Return past errors, converted from hours to seconds."""
    return PastErrorDocument(
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


_PROBE = BatchScript("#!/bin/sh\nexit 0\n", directory="/")
"""Script for a test submission, which gives Slurm's planned start; it never runs."""

_MOST = 1_000_000
_Name = Annotated[str, Field(max_length=64, pattern="^[A-Za-z0-9_.+-]*$")]


class PredictionQuery(SentDocument):
    """Requested resources of the job."""

    limit: Annotated[
        str, Field(max_length=40, description="Time limit: seconds, or for example 48h, 1d12h, 2-00:00:00.")
    ]
    nodes: Annotated[int, Field(ge=1, le=_MOST)] = 1
    partition: Annotated[
        str,
        Field(
            max_length=1_024,
            pattern="^[A-Za-z0-9_.+,-]*$",
            description="One partition, or a comma-separated list.",
        ),
    ] = ""
    gres: Annotated[
        str, Field(max_length=200, description="GRES per node, such as gpu:2 or gpu:a100:4,npu:2.")
    ] = ""
    account: _Name = ""
    qos: _Name = ""
    predictor: Annotated[
        str, Field(max_length=160, description="Additional predictor, such as fixed:6h; /predictors lists them.")
    ] = ""


def prediction_routes(service: ApiService) -> APIRouter:
    """Return the route of predictions."""
    routes = APIRouter(tags=["predictions"])

    @routes.get("/predictions", summary="Predicted start of a job")
    async def predict(caller: Reader, query: Annotated[PredictionQuery, Query()]) -> PredictionList:
        """Predict with the active predictor, all shadow predictors, and one named in the request; with past
        errors.

        The result is based on the last snapshot of the cluster and reports its age. If Slurm hides the jobs of
        other users, only administrators get the waits of one account; for other callers the account is ignored.
        """
        every = service.gate.policy().shows_jobs_to(caller, hidden=service.hides_jobs())
        request = _request(query, caller.name)
        request = request if every else replace(request, account="")
        check_fits(request, service.status().snapshot)
        return await ask_all(service, request, query.predictor)

    return routes


async def ask_all(service: ApiService, request: JobRequest, named: str = "") -> PredictionList:
    """Return the predictions of all predictors, with past errors. Raises as ``foreseen`` does."""
    inquiries, user = inquiries_of(service), request.user
    guard = await run_in_thread(user, inquiries.named, named, Asker(user, question=True)) if named else None
    found = await foreseen(service, PredictionRequest(request, guard))
    past = await query(user, inquiries.measured, found.partition)
    alike = await query(user, inquiries.measured, replace(request, partition=found.partition))
    by_name = ({each.predictor: each for each in measured} for measured in (past, alike))
    return prediction_list(request, found, service.now(), *by_name)


def _request(query: PredictionQuery, user: str) -> JobRequest:
    """Raises ``BadDocument``."""
    try:
        gres = parse_gres(query.gres)
    except BadSpelling as error:
        raise BadDocument(f"query.gres: {error}") from None
    if any(not 0 < count <= _MOST for _, count in gres):
        raise BadDocument(f"query.gres: expected counts from 1 to {_MOST}")
    return JobRequest(
        name="prediction",
        user=user,
        limit=_limit(query.limit),
        nodes=query.nodes,
        partition=query.partition,
        account=query.account,
        qos=query.qos,
        gres_per_node=gres,
        batch=_PROBE,
    )


def _limit(text: str) -> Seconds:
    try:
        seconds = int(text) if text.isascii() and text.isdigit() else parse_human_limit(text)
    except BadSpelling as error:
        raise BadDocument(f"query.limit: {error}") from None
    if not 0 < seconds <= UNLIMITED:
        raise BadDocument("query.limit: expected more than 0 and at most a year")
    return seconds

"""``/api/v1/predictions``: predicted start of a job submitted now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from mirage.api.access.dependencies import Reader
from mirage.api.conventions.described import SentDocument
from mirage.api.conventions.problems import BadDocument
from mirage.api.conventions.threads import query, run_in_thread
from mirage.api.documents.predictions import PredictionList, prediction_list
from mirage.api.routes.inquirer import check_fits, foreseen, inquiries_of
from mirage.control.guard import Asker
from mirage.control.questions import Question
from mirage.domain.errors import BadSpelling
from mirage.domain.job import UNLIMITED, BatchScript, JobRequest
from mirage.slurm.duration import parse_human_limit
from mirage.slurm.tres import parse_gres

if TYPE_CHECKING:
    from mirage.api.port import ApiService
    from mirage.domain.job import Seconds

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
    found = await foreseen(service, Question(request, guard))
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

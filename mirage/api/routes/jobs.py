"""``/api/v1/jobs``: pending jobs with predicted starts, as flat documents for portals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from fastapi import APIRouter, Path, Query
from starlette.exceptions import HTTPException

from mirage.api.access.caller import Caller
from mirage.api.access.dependencies import Reader
from mirage.api.conventions.pages import Cursor, Limit, read_number, spell_cursor
from mirage.api.documents.instants import instant
from mirage.api.documents.jobs import (
    JobPrediction,
    PendingJobs,
    code_of,
    job_documents,
    kept_pending,
    labels_of,
    pending_job,
)
from mirage.api.routes.inquirer import foreseen
from mirage.api.routes.predictions import ask_all
from mirage.control.questions import Question
from mirage.domain.errors import NotPermitted
from mirage.domain.job import ABSENT, JobRequest

if TYPE_CHECKING:
    from mirage.api.documents.jobs import JobDocument
    from mirage.api.port import ApiService
    from mirage.control.questions import Foresight
    from mirage.domain.snapshot import Snapshot

_SHAPES = 8
"""Different job shapes predicted per page."""


def job_routes(service: ApiService) -> APIRouter:
    """Return the routes of pending jobs."""
    routes = APIRouter(prefix="/jobs", tags=["predictions"])

    @routes.get("", summary="Pending jobs with predicted starts")
    async def list_pending_jobs(
        caller: Reader,
        user: Annotated[str, Query(max_length=64, description="me; for administrators: any user.")] = "me",
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> PendingJobs:
        """List the caller's pending jobs with Slurm's planned start and the active predictor's forecast for such a
        job.

        Predictors model the queue only. So a job that is held, dependent, or at a limit of its account or QOS has
        no prediction. A page has predictions for at most 8 different job shapes; other jobs have Slurm's plan
        only.
        """
        name = caller.name if user == "me" else user
        if not caller.may_touch(name):
            raise NotPermitted(f"{caller.name} may list only own jobs; /queue shows those of others")
        snapshot = service.status().snapshot
        after = read_number(cursor) if cursor else 0
        rows = _rows_of(name, snapshot, after)
        documents = _documents(rows[:limit], snapshot)
        found = await _foreseen(service, rows[:limit], snapshot, name)
        return PendingJobs(
            snapshot=instant(snapshot.time),
            stale_since=instant(service.status().stale_since),
            user=name,
            jobs=[pending_job(document, each) for document, each in zip(documents, found, strict=True)],
            next=spell_cursor(documents[-1].job_id) if len(rows) > limit else None,
        )

    @routes.get("/{job_id}/prediction", summary="Predicted start of one pending job")
    async def predict_job(caller: Reader, job_id: Annotated[int, Path(ge=1, le=2**32 - 1)]) -> JobPrediction:
        """Return Slurm's plan for a pending job, and the predictions of all predictors for a similar job."""
        snapshot = service.status().snapshot
        row = _row_of(job_id, caller, snapshot)
        (document,) = _documents([row], snapshot)
        return JobPrediction(job=document, alike=await ask_all(service, _request(snapshot, row, document.user)))

    return routes


def _documents(rows: list[int], snapshot: Snapshot) -> list[JobDocument]:
    """For own jobs, or an administrator's request: names are shown."""
    labels = labels_of(snapshot.pending, rows, snapshot, lambda owner: True)
    return list(job_documents(snapshot.pending, rows, snapshot, labels, running=False))


def _rows_of(name: str, snapshot: Snapshot, after: int) -> list[int]:
    """Return the rows of a user's pending jobs after a job ID, sorted by job ID."""
    code, jobs = code_of(name, snapshot.users), snapshot.pending
    if code is None:
        return []
    rows = np.flatnonzero((jobs.user == code) & (jobs.job_id > after))
    found: list[int] = rows[np.argsort(jobs.job_id[rows], kind="stable")].tolist()
    return found


def _row_of(job_id: int, caller: Caller, snapshot: Snapshot) -> int:
    """Jobs of others count as missing: the response must not show that they exist."""
    for row in np.flatnonzero(snapshot.pending.job_id == job_id).tolist():
        if caller.may_touch(snapshot.users[int(snapshot.pending.user[row])]):
            return int(row)
    raise HTTPException(404, f"you have no pending job {job_id} in the last snapshot of the queue")


async def _foreseen(service: ApiService, rows: list[int], snapshot: Snapshot, name: str) -> list[Foresight | None]:
    """Return the active predictor's result for each row; ``None``: not predicted."""
    asked: dict[JobRequest, Foresight] = {}
    found: list[Foresight | None] = []
    kept = kept_pending(rows, snapshot)
    for row in rows:
        request = _request(snapshot, row, name)
        unfit = request.limit == ABSENT or int(snapshot.pending.job_id[row]) in kept
        if unfit or (request not in asked and len(asked) >= _SHAPES):
            found.append(None)
            continue
        if request not in asked:
            asked[request] = await foreseen(service, Question(request, only_charge=True))
        found.append(asked[request])
    return found


def _request(snapshot: Snapshot, row: int, user: str) -> JobRequest:
    """The queue has neither generic resources nor the account."""
    jobs = snapshot.pending
    partition, qos = int(jobs.partition[row]), int(jobs.qos[row])
    return JobRequest(
        name="prediction",
        user=user,
        limit=int(jobs.limit[row]),
        nodes=max(1, int(jobs.nodes[row])),
        partition=snapshot.partition_names[partition] if partition >= 0 else "",
        qos=snapshot.qos_names[qos] if qos >= 0 else "",
    )

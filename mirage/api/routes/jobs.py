"""``/api/v1/jobs``: pending jobs with predicted starts, as flat documents for portals; jobs of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from fastapi import APIRouter, Path, Query
from starlette.exceptions import HTTPException

from mirage.api.access.caller import Caller
from mirage.api.access.dependencies import Reader
from mirage.api.conventions.documents import Described, instant
from mirage.api.routes.pages import Cursor, Limit, read_number, spell_cursor
from mirage.api.routes.predictions import PredictionList, ask_all, foreseen, quantiles
from mirage.control.prediction_requests import PredictionRequest
from mirage.domain.errors import NotPermitted
from mirage.domain.job import ABSENT, JobRequest
from mirage.slurm.queuelabels import ends_of, jobs_kept_pending, suspended_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirage.api.port import ApiService
    from mirage.control.prediction_requests import PredictionResult
    from mirage.domain.snapshot import JobColumns, Snapshot

if TYPE_CHECKING:
    Labels = Mapping[int, tuple[str, str]]


class JobDocument(Described):
    """A job in the queue."""

    job_id: int
    """Slurm's job ID; pending tasks of an array share one."""
    name: str | None
    """Job name; ``null``: unknown, or hidden from the caller."""
    user: str
    """User name."""
    account: str | None
    """Account; ``null``: unknown, or hidden from the caller."""
    partition: str
    """Partition; of a job that names several: the first."""
    qos: str
    """QOS."""
    state: str
    """PENDING, RUNNING or SUSPENDED."""
    nodes: int
    """Number of requested or allocated nodes."""
    limit: int | None
    """Time limit in seconds; ``null``: that of the partition."""
    submit: str | None
    """Submission time."""
    eligible: str | None
    """Time from which the job may start; ``null``: unknown, as for held and dependent jobs."""
    start: str | None
    """Start time; ``null``: pending."""
    end: str | None
    """End of the time limit of a running job; ``null`` while suspended, since that time does not count."""
    planned_start: str | None
    """Start of a pending job as planned by Slurm."""
    priority: int | None
    """Priority, as computed by Slurm."""
    waited: int | None
    """Seconds from submission to start, or until now."""


class PendingJob(JobDocument):
    """A pending job and its predicted start."""

    predicted_start: str | None
    """Median predicted start of a similar job submitted now; this job should start no later. ``null``: no
    prediction, or the job is pending for another reason than the queue: a hold, a dependency, a begin time, a
    limit of its account or QOS, or a partition that is down."""
    predicted_start_p10: str | None
    """P10 of that start."""
    predicted_start_p90: str | None
    """P90 of that start."""
    predictor: str
    """Predictor of the forecast; empty: none."""


class PendingJobs(Described):
    """Pending jobs of one user."""

    snapshot: str | None
    """Time of the snapshot."""
    stale_since: str | None
    """Time of the last answer of the cluster; ``null``: it answers now."""
    user: str
    """User name."""
    jobs: list[PendingJob]
    """Jobs, sorted by job ID."""
    next: str | None
    """``cursor`` of the next page; ``null`` on the last page."""


class JobPrediction(Described):
    """One pending job: Slurm's planned start, and predictions for a similar job."""

    job: JobDocument
    """The job in the last snapshot."""
    alike: PredictionList
    """Predictions for a similar job submitted now; this job, already queued, should start no later."""


def job_documents(
    jobs: JobColumns, rows: Sequence[int], snapshot: Snapshot, labels: Labels, *, running: bool
) -> Iterator[JobDocument]:
    """Yield the documents of these rows; names and accounts only of jobs in ``labels``."""
    now, ids = snapshot.time, jobs.job_id[list(rows)]
    suspended = suspended_jobs(snapshot.labels, ids) if running else frozenset()
    ends = ends_of(snapshot.labels, ids) if running else {}
    for row in rows:
        job_id = int(jobs.job_id[row])
        name, account = labels.get(job_id, ("", ""))
        start, submit, limit = int(jobs.start[row]), int(jobs.submit[row]), int(jobs.limit[row])
        until = start if running else now
        ends_at = running and job_id not in suspended and ABSENT not in (start, limit)
        yield JobDocument(
            job_id=job_id,
            name=_told(name),
            user=_named(snapshot.users, jobs.user[row]),
            account=_told(account),
            partition=_named(snapshot.partition_names, jobs.partition[row]),
            qos=_named(snapshot.qos_names, jobs.qos[row]),
            state="SUSPENDED" if job_id in suspended else "RUNNING" if running else "PENDING",
            nodes=int(jobs.nodes[row]),
            limit=limit if limit != ABSENT else None,
            submit=instant(submit),
            eligible=instant(int(jobs.eligible[row])),
            start=instant(start) if running else None,
            end=instant(max(start + limit, ends.get(job_id, ABSENT))) if ends_at else None,
            planned_start=instant(start) if not running else None,
            priority=int(jobs.priority[row]) if jobs.priority[row] != ABSENT else None,
            waited=max(0, until - submit) if ABSENT not in (until, submit) else None,
        )


def labels_of(jobs: JobColumns, rows: Sequence[int], snapshot: Snapshot, shown: Callable[[str], bool]) -> Labels:
    """Return names and accounts of the rows whose users pass ``shown``."""
    seen = [row for row in rows if shown(_named(snapshot.users, jobs.user[row]))]
    return snapshot.labels.of(jobs.job_id[seen].tolist()) if seen else {}


def _told(text: str) -> str | None:
    """Replace undecodable bytes by a question mark; ``None`` for an empty text."""
    return text.encode(errors="replace").decode() or None


def pending_job(document: JobDocument, found: PredictionResult | None) -> PendingJob:
    """Add the forecast of the active predictor, or of the fallback that answered."""
    replies = found.said if found is not None else ()
    said = next((each for each in replies if each.forecast is not None), None)
    p10, p50, p90 = quantiles(said.forecast if said is not None else None)
    return PendingJob(
        **document.model_dump(),
        predicted_start=instant(p50),
        predicted_start_p10=instant(p10),
        predicted_start_p90=instant(p90),
        predictor=said.predictor if said is not None else "",
    )


def kept_pending(rows: Sequence[int], snapshot: Snapshot) -> frozenset[int]:
    """Return the IDs of pending jobs that the queue alone does not keep from starting.

    They are not eligible (held, dependent, or with a begin time), or have a pending reason such as a limit.
    """
    jobs = snapshot.pending.take(np.array(rows, dtype=np.int64))
    not_eligible = frozenset(jobs.job_id[jobs.eligible > snapshot.time].tolist())
    return not_eligible | jobs_kept_pending(snapshot.labels, jobs.job_id)


def code_of(name: str, vocabulary: Sequence[str]) -> int | None:
    """Return a name's code in a snapshot, or ``None``."""
    return vocabulary.index(name) if name in vocabulary else None


def _named(vocabulary: Sequence[str], code: int) -> str:
    return (_told(vocabulary[int(code)]) or "") if 0 <= code < len(vocabulary) else ""


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


async def _foreseen(
    service: ApiService, rows: list[int], snapshot: Snapshot, name: str
) -> list[PredictionResult | None]:
    """Return the active predictor's result for each row; ``None``: not predicted."""
    asked: dict[JobRequest, PredictionResult] = {}
    found: list[PredictionResult | None] = []
    kept = kept_pending(rows, snapshot)
    for row in rows:
        request = _request(snapshot, row, name)
        unfit = request.limit == ABSENT or int(snapshot.pending.job_id[row]) in kept
        if unfit or (request not in asked and len(asked) >= _SHAPES):
            found.append(None)
            continue
        if request not in asked:
            asked[request] = await foreseen(service, PredictionRequest(request, only_charge=True))
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

"""Jobs of the queue: all of them as squeue shows them, and one's own pending ones with when they may start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.api.conventions.described import Described
from mirage.api.documents.instants import instant
from mirage.api.documents.predictions import PredictionList, quantiles
from mirage.domain.job import ABSENT
from mirage.slurm.queuelabels import ends_of, jobs_kept_pending, suspended_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirage.control.questions import Foresight
    from mirage.domain.snapshot import JobColumns, Snapshot

    Labels = Mapping[int, tuple[str, str]]


class JobDocument(Described):
    """One job."""

    job_id: int
    """Slurm's number; the tasks of an array that still wait share one."""
    name: str | None
    """``null``: not known, or not for the caller to see."""
    user: str
    """Whose job it is."""
    account: str | None
    """``null``: as with the name."""
    partition: str
    """The first, where it would take any of several."""
    qos: str
    """As Slurm calls it."""
    state: str
    """PENDING, RUNNING or SUSPENDED."""
    nodes: int
    """How many it asks for, or holds."""
    limit: int | None
    """Time limit; ``null``: the partition's."""
    submit: str | None
    """When it was submitted."""
    eligible: str | None
    """``null``: not yet known, as for held jobs and those that depend on others."""
    start: str | None
    """When it started; ``null``: it is pending."""
    end: str | None
    """Running: when its limit ends it. ``null`` while it is suspended: that time does not count."""
    planned_start: str | None
    """Pending: Slurm's own plan."""
    priority: int | None
    """As Slurm reckons it."""
    waited: int | None
    """Seconds from submission to start, or so far."""


class PendingJob(JobDocument):
    """A pending job and when it may start."""

    predicted_start: str | None
    """Median of when such a job would start if it were submitted only now: this one should start no later.
    ``null``: nothing is predicted, or more than the queue keeps it pending: a hold, a dependency, a begin time,
    a limit of its account or QOS, a partition that is closed."""
    predicted_start_p10: str | None
    """One in ten would start no later."""
    predicted_start_p90: str | None
    """Nine in ten would."""
    predictor: str
    """Who predicts it; empty: nobody."""


class PendingJobs(Described):
    """Somebody's pending jobs."""

    snapshot: str | None
    """When the queue was looked at."""
    stale_since: str | None
    """When the cluster last answered, where it does not answer now."""
    user: str
    """Whose jobs they are."""
    jobs: list[PendingJob]
    """In order of their numbers."""
    next: str | None
    """``cursor`` of the next page; ``null``: this is the last."""


class JobPrediction(Described):
    """One pending job: Slurm's plan for it, and what the predictors predict for another of its shape."""

    job: JobDocument
    """As the last look at the queue showed it."""
    alike: PredictionList
    """As if such a job were submitted now: one that is queued already should start no later."""


def job_documents(
    jobs: JobColumns, rows: Sequence[int], snapshot: Snapshot, labels: Labels, *, running: bool
) -> Iterator[JobDocument]:
    """These rows of the pending or the running jobs; names and accounts are told of those in ``labels``."""
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
    """Names and accounts of those of the rows whose users' are ``shown``."""
    seen = [row for row in rows if shown(_named(snapshot.users, jobs.user[row]))]
    return snapshot.labels.of(jobs.job_id[seen].tolist()) if seen else {}


def _told(text: str) -> str | None:
    """What no text can say, stray bytes of another encoding, becomes a question mark."""
    return text.encode(errors="replace").decode() or None


def pending_job(document: JobDocument, found: Foresight | None) -> PendingJob:
    """With the forecast of the active predictor, or of the fallback that answered."""
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
    """Ids of those of the pending jobs that do not start by waiting in the queue.

    They are not eligible (held, waiting for another, to begin later), or have a pending reason such as a limit.
    """
    jobs = snapshot.pending.take(np.array(rows, dtype=np.int64))
    not_eligible = frozenset(jobs.job_id[jobs.eligible > snapshot.time].tolist())
    return not_eligible | jobs_kept_pending(snapshot.labels, jobs.job_id)


def code_of(name: str, vocabulary: Sequence[str]) -> int | None:
    """A name's code in a snapshot; ``None``: there is none."""
    return vocabulary.index(name) if name in vocabulary else None


def _named(vocabulary: Sequence[str], code: int) -> str:
    return (_told(vocabulary[int(code)]) or "") if 0 <= code < len(vocabulary) else ""

"""Jobs of the accounting, in the newest shape, as links that have left the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, Job, JobId
from mirage.slurm.rest.fields import Record, part, text, whole
from mirage.slurm.rest.queue import exit_code, job_state, limit

if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_NODES = ("", "None assigned")


def read_past_jobs(records: Iterable[Record]) -> dict[JobId, Job]:
    """The accounting's jobs by id, with their comments as tags.

    A requeued job has a record for each run: the last submitted counts. Raises ``BadSpelling``.
    """
    found: dict[JobId, Job] = {}
    for record in records:
        job = _read(record)
        if job.job_id not in found or job.submit >= found[job.job_id].submit:
            found[job.job_id] = job
    return found


def _read(record: Record) -> Job:
    times = part(record, "time")
    state = job_state(part(record, "state"), "current")
    ran = text(record, "nodes") not in _NO_NODES
    return Job(
        job_id=JobId(whole(record, "job_id")),
        name=text(record, "name"),
        user=text(record, "user"),
        partition=text(record, "partition"),
        nodes=whole(record, "allocation_nodes"),
        limit=limit(times, "limit"),
        state=state,
        submit=whole(times, "submission") or ABSENT,
        start=whole(times, "start") or ABSENT if ran else ABSENT,
        end=whole(times, "end") or ABSENT,
        exit_code=exit_code(record),
        tag=text(part(record, "comment"), "job"),
    )

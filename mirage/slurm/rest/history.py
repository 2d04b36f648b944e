"""Jobs of the accounting, in the newest shape, as links that have left the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, Job, JobId
from mirage.slurm.rest.fields import Record, part, text, whole
from mirage.slurm.rest.queue import exit_code, job_state, limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NO_NODES = ("", "None assigned")


def read_past_links(records: Iterable[Record], missing: Mapping[str, JobId]) -> dict[str, Job]:
    """The ``missing`` links among the accounting's jobs, by tag: by id, or by comment where the id is not known.

    Of several under one tag the last submitted counts: a requeued job has a record for each run. Raises
    ``BadSpelling``.
    """
    tag_of = {job_id: tag for tag, job_id in missing.items() if job_id}
    found: dict[str, Job] = {}
    for record in records:
        tag = tag_of.get(JobId(whole(record, "job_id"))) or text(part(record, "comment"), "job")
        if tag not in missing:
            continue
        job = _read(record, tag)
        if tag not in found or job.submit >= found[tag].submit:
            found[tag] = job
    return found


def _read(record: Record, tag: str) -> Job:
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
        tag=tag,
    )

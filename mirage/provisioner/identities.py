"""The known properties of each link's job, so that no other job with its ID is taken for it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT
from mirage.domain.link import NO_JOB
from mirage.domain.linkidentity import LinkIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import JobId
    from mirage.domain.link import Link
    from mirage.domain.snapshot import Snapshot


def expected_jobs(records: Iterable[ChainRecord]) -> dict[str, JobId]:
    """The job IDs of the links that must be accounted for, by tag; ``NO_JOB`` where it is not known."""
    return {link.tag: link.job_id for record in records for link in record.live}


def identities(records: Iterable[ChainRecord], *, released: bool) -> dict[str, LinkIdentity]:
    """The live links that have a job ID, by tag. ``released``: links are jobs that were submitted long before."""
    return {
        link.tag: _identity(record, link, released=released)
        for record in records
        for link in record.live
        if link.job_id != NO_JOB
    }


def as_seen(record: ChainRecord, snapshot: Snapshot) -> ChainRecord:
    """The record with what the snapshot shows of live links: Slurm's submit times, and whether marks are lost."""
    shown = set[str]()
    for link in record.live:
        job = snapshot.link(link.tag, record.chain.owner)
        if job is not None and not job.state.finished:
            shown.add(link.tag)
        if job is None or job.job_id != link.job_id or job.submit in (ABSENT, link.job_submit):
            continue
        if job.runs_untold:  # a later snapshot shows them, because the job's time is not the one stored
            continue
        # Slurm may have taken a job long after it was sent.
        submit = max(link.submit, job.submit) if link.job_submit == ABSENT else link.submit
        record = record.with_link(replace(link, submit=submit, job_submit=job.submit))
    if shown and record.unmarked is shown.isdisjoint(snapshot.unmarked):
        record = replace(record, unmarked=not record.unmarked)
    return record


def _identity(record: ChainRecord, link: Link, *, released: bool) -> LinkIdentity:
    request = record.chain.request
    sent = ABSENT if released else link.submit
    return LinkIdentity(link.tag, record.chain.owner, request.name, request.partition, link.job_submit, sent)

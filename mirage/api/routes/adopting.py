"""Adoption: a job that its owner has submitted becomes link 1 of a new chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Query

from mirage.api.conventions.problems import BadDocument
from mirage.domain.command import AdoptedJob
from mirage.domain.errors import ClusterUnavailable, UnknownJob
from mirage.domain.job import ABSENT, HIGHEST_JOB_ID, job_id_of
from mirage.domain.linkidentity import is_nameless

if TYPE_CHECKING:
    from mirage.api.port import ApiService
    from mirage.backends.acting.links_only import Identity
    from mirage.domain.chain import Chain

AdoptedId = Annotated[
    int | None,
    Query(
        ge=1,
        le=HIGHEST_JOB_ID,
        description="ID of a pending or running job of the owner that becomes link 1. Its comment must be the tag "
        "of that link, `mirage:CHAIN_ID:1`. Without it link 1 is submitted.",
    ),
]


def check_adopts(job_id: int | None, service: ApiService) -> None:
    """Raise ``BadDocument`` if this daemon adopts no jobs."""
    if job_id and service.releases_links:
        raise BadDocument(
            "adopt: this daemon only releases held links that users submit in advance (acting.mode release); "
            "it cannot adopt a job"
        )
    if job_id and service.identify is None:
        raise BadDocument("adopt: the cluster of this daemon is simulated and has no other jobs")


def adopted_job(job_id: int, chain: Chain, service: ApiService) -> AdoptedJob | None:
    """Return the job that becomes link 1 of ``chain``, as Slurm reports it. Takes seconds.

    Only the owner can set the comment. The link's tag there shows that the owner means this job, and identifies
    the link later. Raises ``BadDocument`` for a job that cannot be that link, and ``ClusterUnavailable``.
    """
    if service.identify is None:
        return None
    try:
        found = service.identify(job_id_of(job_id), chain.owner)
    except UnknownJob:
        found = None
    if found is not None and is_nameless(found.user):
        raise ClusterUnavailable(f"adopt: Slurm does not report the user of job {job_id}; try again")
    if found is None or found.user != chain.owner:  # the same text for both: jobs of others may be hidden
        raise BadDocument(f"adopt: Slurm reports no job {job_id} of {chain.owner}")
    if problem := _problem(found, chain.tag(1)):
        raise BadDocument(f"adopt: job {job_id} {problem}")
    return AdoptedJob(job_id_of(job_id), found.submit)


def _problem(job: Identity, tag: str) -> str:
    """Return why the job cannot be the link; empty if it can."""
    if not job.alone:
        return "belongs to a job array or a heterogeneous job; a link is one job"
    if job.state is None or job.state.finished:
        return "has ended" if job.state is not None else "is in a state that Mirage does not know"
    if job.submit == ABSENT:
        return "has no submit time"
    if job.tag != tag:
        return f"has another comment than the tag of link 1; set it first: scontrol update JobId=... Comment={tag}"
    return ""

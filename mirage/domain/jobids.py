"""Links whose stored job ID no job can have: their IDs are dropped, and their tags find the jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.job import is_job_id
from mirage.domain.link import NO_JOB, Link, LinkState

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord


def without_impossible_ids(record: ChainRecord) -> ChainRecord:
    """The record; a link with an impossible ID counts as sent without an answer, one that is over as lost.

    There is never more than one waiting link: where another one waits, such a link is lost, too.
    """
    wrong = [link for link in record.links if link.job_id != NO_JOB and not is_job_id(link.job_id)]
    for link in reversed(wrong):
        lost = replace(link, state=LinkState.LOST, job_id=NO_JOB)
        record = record.with_link(lost)
        if not link.final and not link.is_retired and record.waiting is None:
            record = record.with_link(Link(link.index, link.tag, link.planned, reason=link.reason))
    return record

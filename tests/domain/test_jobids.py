"""Stored links whose job IDs no job can have: they hurt no other chain, and their chain continues."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import chain

from mirage.domain.chain import ChainRecord
from mirage.domain.job import HIGHEST_JOB_ID, JobId, is_job_id
from mirage.domain.link import NO_JOB, Link, LinkState, without_impossible_ids

CHAIN = chain()
WRONG = [JobId(-5), JobId(HIGHEST_JOB_ID + 1), JobId(1 << 62)]
SUBMITTED = Link(1, CHAIN.tag(1), 10, LinkState.SUBMITTED, JobId(-5), 11, reason="due")
RAN = Link(1, CHAIN.tag(1), 10, LinkState.RUNNING, JobId(-5), 11, 12, 100)
PLANNED = Link(1, CHAIN.tag(1), 10, reason="due")


@pytest.mark.parametrize("job_id", WRONG)
def test_waiting_link_with_impossible_id_is_planned_again(job_id: JobId) -> None:
    record = ChainRecord(CHAIN, (replace(SUBMITTED, job_id=job_id),))
    assert without_impossible_ids(record).links == (PLANNED,)


def test_running_link_with_impossible_id_is_looked_for_by_tag() -> None:
    assert without_impossible_ids(ChainRecord(CHAIN, (RAN,))).links == (replace(PLANNED, reason=""),)


def test_ended_link_with_impossible_id_stays_over() -> None:
    ended = replace(RAN, state=LinkState.ENDED)
    assert without_impossible_ids(ChainRecord(CHAIN, (ended,))).links[0] == replace(
        ended, state=LinkState.LOST, job_id=NO_JOB
    )


def test_chain_has_one_waiting_link_at_most() -> None:
    second = replace(SUBMITTED, index=2, tag=CHAIN.tag(2))
    for other in (second, replace(second, job_id=JobId(7))):
        record = without_impossible_ids(ChainRecord(CHAIN, (RAN, other)))
        record.check()
        assert [link.state for link in record.links] == [
            LinkState.LOST,
            other.state if other.job_id == 7 else PLANNED.state,
        ]
        assert all(link.job_id == NO_JOB or is_job_id(link.job_id) for link in record.links)


def test_record_with_possible_ids_is_the_same() -> None:
    record = ChainRecord(
        CHAIN, (replace(RAN, job_id=JobId(HIGHEST_JOB_ID)), replace(PLANNED, index=2, tag=CHAIN.tag(2)))
    )
    assert without_impossible_ids(record) is record

"""A job that Slurm requeued: it is the next link, or exits for the successor that is there already."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import HOUR, MIN
from provisioner.test_machine import LIMIT, after, fresh, job, running, seen, submitted

from mirage.domain.chain import HandoverPolicy, HandoverSettings
from mirage.domain.job import ABSENT, BatchScript, JobState
from mirage.provisioner import gates, handover
from mirage.provisioner.events import LinkRequeued, LinkStarted, link_events


@pytest.mark.parametrize(("starts", "policy"), [(ABSENT, "none"), (ABSENT, "overlap"), (3 * HOUR, "none")])
def test_requeued_job_that_runs_again_is_kept_rather_than_a_successor_that_waits(starts: int, policy: str) -> None:
    """The daemon was away; with one writer the successor waits for its end also where it has started."""
    record = submitted(running(fresh(handover=HandoverSettings(HandoverPolicy(policy)))), HOUR)
    if starts != ABSENT:
        record = after(record, LinkStarted(2, starts, starts + LIMIT), now=starts)
    record = after(record, LinkRequeued(1, 2 * HOUR, 2 * HOUR, 2 * HOUR + MIN), now=3 * HOUR)
    first, second, third = record.links
    assert (first.final, second.is_retired, third.job_id) == (True, True, first.job_id)
    assert handover.to_end(record, 3 * HOUR + MIN) == (second,)


def test_successor_that_works_already_is_kept_rather_than_a_requeued_job() -> None:
    record = submitted(running(fresh(handover=HandoverSettings(HandoverPolicy.NONE))), HOUR)
    record = after(record, LinkStarted(2, 2 * HOUR, 2 * HOUR + LIMIT), now=2 * HOUR)
    record = after(record, LinkRequeued(1, 2 * HOUR, 2 * HOUR, 2 * HOUR + MIN), now=3 * HOUR)
    assert len(record.links) == 2
    assert (record.links[0].is_retired, record.links[1].is_retired) == (True, False)


@pytest.mark.parametrize(
    ("successor", "policy", "again"),
    [
        (ABSENT, "none", 3 * HOUR),
        (3 * HOUR + MIN, "none", 3 * HOUR),
        (3 * HOUR - MIN, "none", ABSENT),
        (ABSENT, "overlap", 3 * HOUR),
        (3 * HOUR + MIN, "overlap", ABSENT),
    ],
)
def test_what_the_record_does_not_know_of_the_successor_counts(successor: int, policy: str, again: int) -> None:
    """One snapshot shows the requeued job and the start of its successor."""
    record = submitted(running(fresh(handover=HandoverSettings(HandoverPolicy(policy)))), HOUR)
    requeued = replace(job(1, JobState.RUNNING, 3 * HOUR, 3 * HOUR + LIMIT), submit=2 * HOUR)
    state = JobState.PENDING if successor == ABSENT else JobState.RUNNING
    second = job(2, state, successor, successor + LIMIT if successor != ABSENT else ABSENT)
    (event,) = [
        each for each in link_events(record, seen(4 * HOUR, requeued, second)) if isinstance(each, LinkRequeued)
    ]
    assert event.again == again


@pytest.mark.parametrize(("successor", "kept"), [(ABSENT, True), (4 * HOUR, True), (2 * HOUR + MIN, False)])
def test_requeued_job_that_could_not_be_cancelled_in_time_is_kept(successor: int, kept: bool) -> None:
    """No agent runs, for example: it was retired while it was pending, and runs again."""
    record = submitted(running(fresh(handover=HandoverSettings(HandoverPolicy.NONE))), HOUR)
    record = after(record, LinkRequeued(1, 2 * HOUR, 2 * HOUR), now=2 * HOUR)
    assert handover.to_end(record, 2 * HOUR) == (record.links[0],)
    again = replace(job(1, JobState.RUNNING, 3 * HOUR, 3 * HOUR + LIMIT), submit=2 * HOUR)
    state = JobState.PENDING if successor == ABSENT else JobState.RUNNING
    second = job(2, state, successor, successor + LIMIT if successor != ABSENT else ABSENT)
    record = after(record, *link_events(record, seen(5 * HOUR, again, second)), now=5 * HOUR)
    first, second_link = record.links[:2]
    assert (first.start, first.end, first.final) == (0, 2 * HOUR, kept)
    assert second_link.is_retired == kept
    assert len(record.links) == (3 if kept else 2)
    to_end = {link.index for link in handover.to_end(record, 5 * HOUR + MIN)}
    if kept:
        assert record.links[2].job_id == first.job_id
        assert 1 not in to_end
    else:
        assert to_end == {1}


def test_requeued_successor_is_ready_by_the_file_that_its_environment_names() -> None:
    """A requeue keeps the environment, and the file of the earlier run may be there until its script starts."""
    directory = BatchScript("#!/bin/sh\n", directory="/work")
    record = fresh(handover=HandoverSettings(HandoverPolicy.WHEN_READY))
    request = replace(record.chain.request, batch=directory)
    record = submitted(running(replace(record, chain=replace(record.chain, request=request))), HOUR)
    record = after(record, LinkStarted(2, HOUR, HOUR + LIMIT), now=HOUR)
    first = gates.ready_file(record)
    assert not gates.may_be_stale(record, HOUR)
    record = after(record, LinkRequeued(2, HOUR + MIN, HOUR + MIN), now=HOUR + MIN)
    record = after(record, LinkStarted(3, 2 * HOUR, 2 * HOUR + LIMIT), now=2 * HOUR)
    assert record.links[2].job_id == record.links[1].job_id
    assert gates.ready_file(record) == first == gates.ready_file_of_last(record)
    assert first in gates.watched_files(record)
    assert [gates.may_be_stale(record, 2 * HOUR + passed) for passed in (0, MIN - 1, MIN)] == [True, True, False]

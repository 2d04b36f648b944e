"""Runs of a requeued job that no snapshot has shown: accounting reports them, and each is a link."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import HOUR, MIN
from provisioner.test_machine import LIMIT, fresh, job, running, seen, submitted

from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition
from mirage.domain.job import ABSENT, Job, JobState, PastRun
from mirage.domain.link import LinkState
from mirage.provisioner import machine
from mirage.provisioner.events import LinkQueued, LinkRequeued, LinkStarted, link_events
from mirage.provisioner.identities import as_seen

RUNS = tuple(PastRun(k * HOUR, k * HOUR + MIN, k * HOUR + 31 * MIN) for k in range(4))
"""A job that requeued itself four times; it has its fifth run next."""


def look(record: ChainRecord, known: Job, now: int) -> ChainRecord:
    """A cycle, in which the snapshot shows the job as the live link that has its ID."""
    shown = [replace(known, tag=link.tag) for link in record.live if link.job_id == known.job_id]
    stored = [run for run in known.past_runs if run[0] < known.submit]
    asked = any(link.job_submit < known.submit for link in record.live)
    shown = [replace(each, past_runs=tuple(stored) if asked else ()) for each in shown]
    view = seen(now, *shown)
    record = machine.apply_all(record, link_events(record, view), now)
    record.check()
    return as_seen(record, view)


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING, JobState.COMPLETED])
@pytest.mark.parametrize(("was_running", "submit_seen"), [(True, 0), (False, 0), (False, ABSENT)])
def test_runs_that_nobody_saw_are_links_of_their_own(state: JobState, was_running: bool, submit_seen: int) -> None:
    done = DoneCondition(exit_code=None, links=4)
    record = running(fresh(done=done), MIN) if was_running else submitted(fresh(done=done))
    record = record.with_link(replace(record.links[0], job_submit=submit_seen))
    start = ABSENT if state is JobState.PENDING else 5 * HOUR
    end = 5 * HOUR + LIMIT if state is JobState.RUNNING else 5 * HOUR + MIN if state.finished else ABSENT
    now = replace(job(1, state, start, end), submit=4 * HOUR, past_runs=RUNS)
    for cycle in range(6):
        record = look(record, now, 6 * HOUR + cycle * MIN)
    ran = [(link.start, link.end) for link in record.links if link.requeued]
    assert ran == [(run.start, run.end) for run in RUNS]
    assert (record.status, record.reason) == (ChainStatus.DONE, "4 links have run")


def test_runs_that_nobody_saw_count_towards_the_total_time() -> None:
    record = running(fresh(done=DoneCondition(exit_code=None, total_time=100 * MIN)), MIN)
    record = record.with_link(replace(record.links[0], job_submit=0))
    waiting = replace(job(1, JobState.PENDING), submit=4 * HOUR, past_runs=RUNS)
    for cycle in range(6):
        record = look(record, waiting, 6 * HOUR + cycle * MIN)
    assert record.status is ChainStatus.DONE
    assert sum(link.requeued for link in record.links) == 4


@pytest.mark.parametrize(("slurms", "kept"), [(2 * HOUR, 2 * HOUR), (HOUR, HOUR), (HOUR - MIN, HOUR)])
def test_link_is_submitted_when_slurm_took_its_job(slurms: int, kept: int) -> None:
    """A controller that starts again may take it long after it was sent."""
    record = submitted(fresh(), HOUR)
    first = as_seen(record, seen(3 * HOUR, replace(job(1, JobState.PENDING), submit=slurms)))
    assert first.links[0].submit == kept
    requeued = as_seen(first, seen(4 * HOUR, replace(job(1, JobState.PENDING), submit=4 * HOUR)))
    assert requeued.links[0].submit == kept, "a job that went back to the queue is another link"


def test_runs_are_asked_for_again_where_accounting_is_away() -> None:
    record = submitted(fresh())
    record = record.with_link(replace(record.links[0], job_submit=0))
    waiting = replace(job(1, JobState.PENDING), submit=4 * HOUR, runs_untold=True)
    kept = as_seen(record, seen(5 * HOUR, waiting))
    assert kept.links[0].job_submit == 0
    told = as_seen(record, seen(5 * HOUR, replace(waiting, runs_untold=False)))
    assert told.links[0].job_submit == 4 * HOUR


def test_job_without_a_start_tells_of_no_start() -> None:
    """Slurm shows a job that goes back to the queue as completing, for a while without a start."""
    leaving = job(1, JobState.RUNNING, ABSENT, ABSENT)
    assert link_events(running(fresh()), seen(2 * HOUR, leaving)) == ()
    assert link_events(submitted(fresh()), seen(2 * HOUR, leaving)) == (LinkQueued(1),)


def test_missed_run_of_a_waiting_link_starts_and_ends() -> None:
    record = submitted(fresh())
    record = record.with_link(replace(record.links[0], job_submit=0))
    waiting = replace(job(1, JobState.PENDING), submit=HOUR, past_runs=RUNS[:1])
    began, again = link_events(record, seen(2 * HOUR, waiting))
    assert isinstance(began, LinkStarted)
    assert (began.start, again) == (MIN, LinkRequeued(1, 31 * MIN, HOUR))
    assert record.links[0].state is LinkState.SUBMITTED

"""What becomes of links that complete, vanish, or of which accounting tells late."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirage.backends.cli_links import GRACE, Fates, LinkMemory
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.snapshot import JobColumns
from mirage.slurm.queuetext import Queue, QueuedJob

if TYPE_CHECKING:
    from collections.abc import Collection

TAG, ID, NOW = "mirage:svc:1", JobId(7), 1_000_000
RUNS = Job(ID, "svc", "alice", "cpu", 1, 3_600, JobState.RUNNING, NOW - 100, NOW - 50, NOW + 3_550, tag=TAG)


def queue(*jobs: QueuedJob) -> Queue:
    return Queue(JobColumns.none(), JobColumns.none(), (), (), (), jobs, ())


class Accounting:
    """Says of each job what it was told to."""

    def __init__(self, *jobs: Job, **how: bool) -> None:
        self.fates = Fates({job.job_id: job for job in jobs}, **how)
        self.asked: list[set[JobId]] = []

    def __call__(self, ids: Collection[JobId]) -> Fates:
        self.asked.append(set(ids))
        return self.fates


def completing(exit_code: int = 0) -> QueuedJob:
    return QueuedJob(replace(RUNS, end=NOW), completing=True, exit_code=exit_code)


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED])
def test_a_completing_link_has_ended_as_accounting_says(state: JobState) -> None:
    told = replace(RUNS, state=state, exit_code=3, end=NOW - 1)
    job = LinkMemory().account(queue(completing()), {TAG: ID}, Accounting(told), NOW)[TAG]
    assert (job.state, job.exit_code, job.end) == (state, 3, NOW - 1)


def test_where_accounting_tells_no_exit_code_the_queue_does() -> None:
    """As slurmrestd before v0.0.40; by the next look the queue may have forgotten the job."""
    told = replace(RUNS, state=JobState.FAILED, exit_code=ABSENT, end=NOW - 1)
    memory = LinkMemory()
    assert memory.account(queue(completing(4)), {TAG: ID}, Accounting(told), NOW)[TAG].exit_code == 4


@pytest.mark.parametrize(
    "accounting",
    [
        Accounting(),
        Accounting(RUNS),
        Accounting(answered=False),
        Accounting(lagging=False),
        Accounting(replace(RUNS, state=JobState.PREEMPTED)),
        Accounting(replace(RUNS, state=JobState.NODE_FAIL)),
    ],
    ids=["unknown", "lagging", "down", "none", "requeued", "node-fail"],
)
def test_a_completing_link_runs_until_its_end_is_certain(accounting: Accounting) -> None:
    """COMPLETING alone does not tell a success from a time-out or a requeue."""
    job = LinkMemory().account(queue(completing()), {TAG: ID}, accounting, NOW)[TAG]
    assert job.state is JobState.RUNNING
    assert accounting.asked == [{ID}]


def seen_running() -> LinkMemory:
    memory = LinkMemory()
    memory.account(queue(QueuedJob(RUNS, completing=False)), {TAG: ID}, Accounting(), NOW)
    return memory


@pytest.mark.parametrize("accounting", [Accounting(), Accounting(replace(RUNS, end=-1))], ids=["unknown", "runs"])
def test_accounting_may_lag_for_a_while(accounting: Accounting) -> None:
    memory = seen_running()
    for later in (0, GRACE):
        assert memory.account(queue(), {TAG: ID}, accounting, NOW + 60 + later)[TAG] == RUNS
    assert memory.account(queue(), {TAG: ID}, accounting, NOW + 61 + GRACE) == {}


def test_what_was_never_accounted_for_is_gone_at_once() -> None:
    assert seen_running().account(queue(), {TAG: ID}, Accounting(lagging=False), NOW + 60) == {}


def test_nothing_is_asked_while_every_link_is_in_the_queue() -> None:
    accounting = Accounting()
    LinkMemory().account(queue(QueuedJob(RUNS, completing=False)), {TAG: ID}, accounting, NOW)
    assert accounting.asked == []


def test_what_is_expected_no_more_is_forgotten() -> None:
    memory = seen_running()
    assert memory.account(queue(), {}, Accounting(), NOW + 60) == {}
    assert (memory.last, memory.missing_since) == ({}, {})

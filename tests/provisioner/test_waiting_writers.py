"""A link of one writer that has nodes and waits for the end of the one before: what counts is when scripts run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from provisioner.test_machine import LIMIT, after, fresh, submitted

from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition
from mirage.domain.job import JobState
from mirage.provisioner.events import LinkEnded, LinkStarted
from mirage.provisioner.service import ServiceState, service_of

LINKS = 3


def both_run() -> ChainRecord:
    """The first from 0 on, the second has nodes from 100 on."""
    record = submitted(fresh(done=DoneCondition(exit_code=0, links=LINKS)), 0)
    record = submitted(after(record, LinkStarted(1, 0, LIMIT), now=0), 50)
    record = record.with_link(replace(record.links[1], looks=True))
    return after(record, LinkStarted(2, 100, 100 + LIMIT), now=100)


def test_time_of_waiting_is_no_overlap() -> None:
    record = both_run()
    assert service_of(record, 200).overlap == 0
    record = after(record, LinkEnded(1, 0, 300, JobState.TIMEOUT, 0), now=300)
    assert [(each.interruption, each.overlap) for each in record.outcomes()] == [(0, 0)]
    assert not record.links[1].waited


def test_link_that_always_waited_is_neither_work_nor_failure() -> None:
    """Slurm's warning kills the shell that waits."""
    record = after(both_run(), LinkEnded(2, 100, 250, JobState.FAILED, 138), now=250)
    assert (record.links[1].waited, record.failures, record.status) == (True, 0, ChainStatus.ACTIVE)
    record = after(record, LinkEnded(1, 0, 300, JobState.TIMEOUT, 0), now=300)
    assert (service_of(record, 360).state, service_of(record, 360).interruption) == (ServiceState.DOWN, 60)
    third = after(submitted(record, 310), LinkStarted(3, 400, 400 + LIMIT), now=400)
    assert [(each.interruption, each.overlap) for each in third.outcomes()] == [(100, 0)]
    assert after(third, LinkEnded(3, 400, 500, JobState.TIMEOUT, 0), now=500).status is ChainStatus.ACTIVE, (
        "2 of 3"
    )


def test_end_of_both_between_two_looks_is_judged_by_their_times() -> None:
    record = after(both_run(), LinkEnded(1, 0, 300, JobState.TIMEOUT, 0), now=400)
    record = after(record, LinkEnded(2, 100, 250, JobState.FAILED, 138), now=400)
    assert (record.links[1].waited, record.failures) == (True, 0)


def test_cancelled_while_it_waits_the_chain_waits_for_its_owner() -> None:
    record = after(both_run(), LinkEnded(2, 100, 250, JobState.CANCELLED, 0), now=250)
    assert record.status is ChainStatus.PAUSED


@pytest.mark.parametrize("looks", [False, True])
def test_link_that_does_not_look_has_worked(looks: bool) -> None:
    record = both_run()
    record = record.with_link(replace(record.links[1], looks=looks))
    ended = after(record, LinkEnded(2, 100, 250, JobState.FAILED, 138), now=250)
    assert ended.links[1].waited is looks
    assert ended.failures == (not looks)


@pytest.mark.parametrize(
    ("state", "code", "status", "failures"),
    [(JobState.COMPLETED, 0, ChainStatus.DONE, 0), (JobState.FAILED, 3, ChainStatus.ACTIVE, 1)],
)
def test_exit_code_is_the_scripts_also_before_the_end_of_the_one_before_is_known(
    state: JobState, code: int, status: ChainStatus, failures: int
) -> None:
    """Like while accounting is away: completed work is not repeated."""
    ended = after(both_run(), LinkEnded(2, 100, 250, state, code), now=250)
    assert (ended.links[1].waited, ended.status, ended.failures) == (False, status, failures)

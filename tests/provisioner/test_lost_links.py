"""Links that Slurm has forgotten before a snapshot showed how they ended."""

from __future__ import annotations

import pytest
from fakes import HOUR, chain
from test_machine import LIMIT, SETTLE, after, running, submitted

from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import JobState
from mirage.domain.link import LinkState
from mirage.provisioner import machine
from mirage.provisioner.events import (
    LinkEnded,
    LinkLost,
    LinkStarted,
    ResumeAsked,
)
from mirage.provisioner.machine import NoAction, Successor


def new(done: DoneCondition | None = None, failures: FailurePolicies | None = None) -> ChainRecord:
    return ChainRecord(chain(done=done or DoneCondition(), failures=failures or FailurePolicies()))


STOPS = FailurePolicies(exit=FailurePolicy(FailureAction.STOP))
ENDLESS = DoneCondition(exit_code=None)


@pytest.mark.parametrize(
    ("done", "policies", "now", "expected"),
    [
        (ENDLESS, FailurePolicies(), LIMIT + 7 * HOUR, (ChainStatus.ACTIVE, 0)),
        (ENDLESS, FailurePolicies(), HOUR - 1, (ChainStatus.ACTIVE, 1)),
        (ENDLESS, STOPS, LIMIT + 7 * HOUR, (ChainStatus.PAUSED, 0)),
        (ENDLESS, STOPS, HOUR - 1, (ChainStatus.PAUSED, 0)),
        (DoneCondition(exit_code=0), FailurePolicies(), LIMIT + 7 * HOUR, (ChainStatus.PAUSED, 0)),
        (DoneCondition(exit_code=0), FailurePolicies(), HOUR - 1, (ChainStatus.PAUSED, 0)),
        (DoneCondition(exit_code=9), FailurePolicies(), LIMIT + 7 * HOUR, (ChainStatus.PAUSED, 0)),
    ],
)
def test_lost_link_pauses_the_chain_where_its_end_may_have_ended_it(
    done: DoneCondition, policies: FailurePolicies, now: int, expected: tuple[ChainStatus, int]
) -> None:
    record = after(running(new(done=done, failures=policies)), LinkLost(1), now=now)
    link = record.links[0]
    assert (link.state, link.end_known) == (LinkState.LOST, False)
    assert (record.status, record.failures) == expected
    assert isinstance(machine.need(record, now, SETTLE), NoAction) is (record.status is ChainStatus.PAUSED)
    if record.status is ChainStatus.PAUSED:
        assert machine.need(after(record, ResumeAsked(), now=now), now, SETTLE) == Successor(link)


def test_lost_link_whose_successor_has_started_changes_nothing() -> None:
    record = after(submitted(running(new()), HOUR), LinkStarted(2, LIMIT + 5, 2 * LIMIT), now=LIMIT + 5)
    record = after(record, LinkLost(1), now=LIMIT + HOUR)
    assert (record.links[0].state, record.status) == (LinkState.LOST, ChainStatus.ACTIVE)
    assert record.handovers() == (), "when link 1 ended is not known"
    record = after(record, LinkEnded(2, LIMIT + 5, 2 * LIMIT, JobState.TIMEOUT, 0), now=2 * LIMIT)
    record = after(submitted(record, 2 * LIMIT), LinkStarted(3, 2 * LIMIT + 7, 3 * LIMIT), now=2 * LIMIT + 7)
    assert [(link.index, outcome.x) for link, outcome in record.handovers()] == [(2, 7)]

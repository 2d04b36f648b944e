"""Successors that fail while their predecessor works: the chain pauses, so that the cause can be corrected."""

from __future__ import annotations

from fakes import HOUR, MIN
from provisioner.test_machine import LIMIT, after, ended, fresh, running, submitted

from mirage.domain.chain import ChainRecord, ChainStatus, HandoverPolicy, HandoverSettings
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import JobState
from mirage.provisioner.events import LinkEnded, LinkStarted, ResumeAsked

WHEN_READY = HandoverSettings(HandoverPolicy.WHEN_READY)


def failing(action: FailureAction) -> ChainRecord:
    """Link 1 runs; each of four successors fails a minute after its start."""
    policy = FailurePolicy(action, retries=3)
    record = running(fresh(handover=WHEN_READY, failures=FailurePolicies(exit=policy)))
    for number in range(1, 5):
        if record.status is not ChainStatus.ACTIVE:
            break
        at = number * HOUR
        record = after(submitted(record, at), LinkStarted(number + 1, at, at + LIMIT), now=at)
        record = after(record, LinkEnded(number + 1, at, at + MIN, JobState.FAILED, 1), now=at + MIN)
    return record


def test_chain_with_a_link_at_work_pauses_and_goes_on_when_resumed() -> None:
    record = failing(FailureAction.RETRY)
    assert (record.status, len(record.links)) == (ChainStatus.PAUSED, 5)
    assert record.links[0].running
    record = after(record, ResumeAsked(), now=5 * HOUR)
    assert (record.status, record.failures) == (ChainStatus.ACTIVE, 0)


def test_owner_who_wants_an_end_at_a_failure_gets_it() -> None:
    record = failing(FailureAction.STOP)
    assert (record.status, len(record.links)) == (ChainStatus.STOPPED, 2)


def test_chain_without_another_link_stops() -> None:
    record = running(fresh(failures=FailurePolicies(exit=FailurePolicy(FailureAction.RETRY, retries=0))))
    assert ended(record, MIN, JobState.FAILED, 1).status is ChainStatus.STOPPED

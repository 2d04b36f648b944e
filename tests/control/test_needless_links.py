"""A link that starts after another has ended the chain has no predecessor to take over from."""

from __future__ import annotations

from fakes import HOUR, FakeCluster, Fate, chain
from loops import Service

from mirage.domain.chain import ChainStatus, DoneCondition, Steering
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import JobState


def test_what_starts_after_the_end_is_no_handover() -> None:
    """Pinned, so that it starts before a cancellation could reach it."""
    stop = FailurePolicies(exit=FailurePolicy(FailureAction.STOP))
    asked = chain(48 * HOUR, DoneCondition(), stop, steering=Steering.AUTO)
    cluster = FakeCluster(lambda request: Fate(runtime=HOUR, state=JobState.FAILED, exit_code=3))
    service = Service(cluster, chain_=asked)
    service.run(HOUR // 2)
    cluster.down = True
    service.run(HOUR + 1)
    cluster.down = False
    record = service.run(20 * HOUR)
    assert record.status is ChainStatus.STOPPED
    assert record.ended_by == 1
    assert len(record.links) == 2
    assert record.outcomes() == ()

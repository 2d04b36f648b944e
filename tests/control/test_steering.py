"""A successor in the queue is held back until it is wanted, and the decision stays open until it starts."""

from __future__ import annotations

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.domain.chain import DoneCondition, LinkState, Steering
from mirage.domain.job import JobChange
from mirage.provisioner.steering import BACK


def steered(steering: Steering, predictor: str = "fixed:5h", wait: int = 5 * HOUR) -> Service:
    cluster = FakeCluster(lambda request: Fate(wait=wait))
    return Service(cluster, predictor, chain_=chain(done=DoneCondition(links=3), steering=steering))


def test_the_first_link_is_not_held_back() -> None:
    service = steered(Steering.HOLD)
    service.cycle()
    assert not service.cluster.submissions[0].held


@pytest.mark.parametrize(
    ("steering", "let_go"),
    [(Steering.HOLD, JobChange(held=False)), (Steering.NICE, JobChange(nice=0))],
)
def test_the_successor_bids_as_its_predecessor_starts_and_is_let_go_in_time(
    steering: Steering, let_go: JobChange
) -> None:
    service = steered(steering)
    service.run(47 * HOUR)
    first, second = service.record.links
    assert second.submit == first.start
    request = service.cluster.submissions[1]
    assert (request.held, request.nice) == ((True, 0) if steering is Steering.HOLD else (False, BACK))
    assert not service.cluster.changes
    service.run(49 * HOUR, tick=MIN)
    assert service.cluster.changes == [(101, let_go)]


def test_a_held_successor_starts_when_it_is_let_go_having_aged() -> None:
    service = steered(Steering.HOLD)
    record = service.run(300 * HOUR)
    assert [outcome.x for outcome in record.outcomes()] == [-5 * HOUR] * 2, "its five hours of waiting were over"


def test_when_the_predecessor_ends_early_the_successor_is_let_go_at_once() -> None:
    fates = iter([Fate(wait=HOUR, runtime=10 * HOUR), Fate(wait=HOUR), Fate(wait=HOUR)])
    done = DoneCondition(exit_code=None, links=3)
    cluster = FakeCluster(lambda request: next(fates))
    service = Service(cluster, "fixed:1h", chain_=chain(done=done, steering=Steering.HOLD))
    service.run(12 * HOUR)
    assert service.record.links[1].start == 11 * HOUR


def test_a_link_let_go_too_early_is_held_back_again() -> None:
    service = steered(Steering.HOLD, "average", wait=100 * HOUR)
    service.cluster.waits = [6 * HOUR]
    service.run(100 * HOUR + 43 * HOUR, tick=10 * MIN)
    assert service.cluster.changes == [(101, JobChange(held=False))]
    service.cluster.waits = [4 * HOUR + 40 * MIN]
    service.cycle(100 * HOUR + 43 * HOUR)
    assert len(service.cluster.changes) == 1, "twenty minutes are no reason"
    service.cluster.waits = [HOUR]
    service.cycle(100 * HOUR + 43 * HOUR)
    assert service.cluster.changes[1:] == [(101, JobChange(held=True))]
    assert service.record.links[1].state is LinkState.PENDING


def test_a_crash_leaves_nothing_to_remember() -> None:
    service = steered(Steering.HOLD)
    service.run(20 * HOUR)
    service.crash()
    record = service.run(300 * HOUR)
    assert len(service.cluster.submissions) == 3
    assert [outcome.x for outcome in record.outcomes()] == [-5 * HOUR] * 2


def test_an_unreachable_controller_changes_nothing() -> None:
    service = steered(Steering.HOLD)
    service.run(43 * HOUR)
    service.cluster.down = True
    service.run(49 * HOUR)
    assert not service.cluster.changes
    service.cluster.down = False
    service.cycle(49 * HOUR + MIN)
    assert service.cluster.changes == [(101, JobChange(held=False))]

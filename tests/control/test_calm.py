"""Far from any act the whole queue is read seldom, and the next poll may come later."""

from __future__ import annotations

import numpy as np
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.control.clocks import Pace, Pacing
from mirage.domain.chain import DoneCondition


class Counting(FakeCluster):
    """Notes of each poll whether it read the queue."""

    def snapshot(self, *, queue: bool = True, **asked):
        self.__dict__.setdefault("polls", []).append(queue)
        return super().snapshot(queue=queue, **asked)


def polls_of_an_hour(queue_age: int) -> list[bool]:
    cluster = Counting(lambda request: Fate(wait=0))
    service = Service(cluster, "fixed:1h", chain_=chain(done=DoneCondition(links=3)), queue_age=queue_age)
    service.run(10 * HOUR, tick=10 * MIN)
    cluster.polls.clear()
    for minute in range(60):
        service.cycle(10 * HOUR + minute * MIN)
    return cluster.polls


def test_the_queue_is_read_seldom_where_nothing_is_due() -> None:
    assert polls_of_an_hour(600).count(True) <= 7


def test_only_a_calm_cycle_lengthens_the_interval() -> None:
    pace = Pace(Pacing(interval=60, jitter=0.0, calm=240), np.random.default_rng(1))
    assert pace.interval() == 60
    pace.rest(True)
    assert (pace.interval(), pace.longest_now) == (240, 240)
    pace.rest(False)
    assert pace.interval() == 60

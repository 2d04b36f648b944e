"""The oracle against exhaustive search, on futures given as a function of the submission time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.decision import Observation, RecentWaits
from mirage.domain.job import Job, JobId, JobRequest, JobState
from mirage.domain.objective import Outcome, Weights, objective
from mirage.domain.snapshot import Snapshot
from mirage.replay.episodes import GRID, Oracle

MIN = 60
END = 24 * 60 * MIN
TICK = 10 * MIN


class Future:
    """Waits that jump from hour to hour."""

    def __init__(self, waits: list[int]) -> None:
        self.waits = waits
        self.asked = 0

    def start_times(self, request: JobRequest, submit_times: np.ndarray) -> np.ndarray:
        self.asked += 1
        assert (np.diff(submit_times) > 0).all()
        return np.array([self.start(int(t)) for t in submit_times], dtype=np.int64)

    def start(self, time: int) -> int:
        return time + self.waits[(time // 3_600) % len(self.waits)]


def played(future: Future, weights: Weights, begin: int = 0) -> int:
    """The submission time that the oracle's scores lead to."""
    oracle = Oracle(future, weights, TICK)
    predecessor = Job(JobId(1), "s", "u", "p", 1, END, JobState.RUNNING, 0, 0, END)
    for now in range(begin, END, TICK):
        seen = Observation(now, Snapshot.unseen(now), predecessor, JobRequest("s", "u", END), RecentWaits.none())
        scores = oracle.predict(seen)
        if scores.submit >= scores.hold:
            return now
    return END


waits = st.lists(st.integers(0, 20 * 3_600), min_size=1, max_size=24)


@given(waits, st.sampled_from([Weights(), Weights(1, 0.5), Weights(0.2, 1)]), st.sampled_from([0, 7 * MIN]))
def test_nothing_on_the_grid_is_better(some: list[int], weights: Weights, begin: int) -> None:
    future = Future(some)

    def cost(time: int) -> float:
        return -objective(Outcome(END, future.start(time)), weights)

    found = played(future, weights, begin)
    grid = [*range(begin, END, GRID), END]
    assert cost(found) <= min(map(cost, grid))
    assert future.asked == 2


@given(waits)
def test_around_the_best_every_tick_is_tried(some: list[int]) -> None:
    future = Future(some)
    found = played(future, Weights())
    near = [t for t in range(found - TICK, found + TICK + 1, TICK) if 0 <= t <= END]
    assert abs(future.start(found) - END) == min(abs(future.start(t) - END) for t in near)


def test_a_constant_wait_is_hit_exactly() -> None:
    assert played(Future([5 * 3_600]), Weights()) == END - 5 * 3_600


def test_a_new_predecessor_is_looked_ahead_for_anew() -> None:
    future = Future([3_600])
    oracle = Oracle(future, Weights(), TICK)
    for number in (1, 1, 2, 2):
        job = Job(JobId(number), "s", "u", "p", 1, END, JobState.RUNNING, 0, 0, END)
        oracle.predict(Observation(0, Snapshot.unseen(0), job, JobRequest("s", "u", END), RecentWaits.none()))
    assert future.asked == 4

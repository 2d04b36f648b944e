"""Many chains: evaluations are spread over the cycles, without delay of urgent ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from small_trace import CLUSTER, HOUR
from test_lookahead import SMALL, seen

from mirage.domain.decision import ActionScores
from mirage.domain.job import JobId
from mirage.predictors.lookahead import AT_ONCE, LONGEST_PAUSE, LONGEST_WAIT, Lookahead

if TYPE_CHECKING:
    from mirage.domain.decision import Observation
    from mirage.domain.job import Seconds
    from mirage.predictors.futures import Outlook

CHAINS, MINUTE = 60, 60


class Counting(Lookahead):
    """Notes when it played futures, and for which predecessor."""

    def __init__(self) -> None:
        super().__init__(CLUSTER, budget=SMALL)
        self.played: list[tuple[Seconds, JobId]] = []

    def outlook(self, observation: Observation, until: Seconds) -> Outlook:
        assert observation.predecessor is not None
        self.played.append((observation.time, observation.predecessor.job_id))
        return super().outlook(observation, until)


def ask(predictor: Lookahead, one: Observation, number: int, after: Seconds, end: Seconds | None = None):
    """What it says ``after`` a time of the successor of another job like the one that was seen."""
    job = one.predecessor
    assert job is not None
    job = replace(job, job_id=JobId(10_000 + number), end=job.end if end is None else one.time + end)
    now = one.time + after
    snapshot = replace(one.snapshot, time=now)
    return predictor.predict(replace(one, time=now, predecessor=job, snapshot=snapshot))


def test_after_a_start_the_looks_are_spread_and_each_chain_has_its_own() -> None:
    one, _ = seen(12, 20 * HOUR, load=0.3)
    predictor = Counting()
    for after in range(0, LONGEST_PAUSE, MINUTE):
        for number in range(CHAINS):
            answer = ask(predictor, one, number, after)
            if isinstance(answer, ActionScores):
                assert answer.submit < answer.hold, "it holds until it has been looked at"
    times = [time for time, _ in predictor.played]
    assert max(times.count(time) for time in set(times)) <= AT_ONCE
    assert {number for _, number in predictor.played} == {10_000 + number for number in range(CHAINS)}


def test_one_that_ends_soon_is_looked_at_however_many_there_are() -> None:
    one, _ = seen(12, 20 * HOUR, load=0.3)
    predictor = Counting()
    for number in range(CHAINS):
        ask(predictor, one, number, 0)
    ask(predictor, one, CHAINS, 0, end=LONGEST_WAIT - 1)
    assert predictor.played[-1][1] == 10_000 + CHAINS


def test_no_look_is_older_than_twice_its_pause() -> None:
    one, _ = seen(12, 20 * HOUR, load=0.3)
    predictor, last = Counting(), dict[JobId, int]()
    for after in range(0, 4 * LONGEST_PAUSE, 5 * MINUTE):
        for number in range(CHAINS):
            ask(predictor, one, number, after)
        last.update((number, time - one.time) for time, number in predictor.played)
        if after >= LONGEST_PAUSE:
            assert len(last) == CHAINS
            assert all(after - then < 2 * LONGEST_PAUSE for then in last.values())

"""The look-ahead as a whole: what it answers, and what it makes of a contended cluster."""

from __future__ import annotations

import tracemalloc
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from small_trace import CLUSTER, DAY, HOUR, plan, trace

from mirage.backends.simulated import SimulatedCluster
from mirage.domain.decision import ActionScores, Observation, RecentWaits, Standing, WaitForecast
from mirage.domain.errors import SubmissionRejected
from mirage.domain.job import JobRequest
from mirage.domain.objective import Weights
from mirage.predictors.futures import MOST_PENDING, Outlook
from mirage.predictors.lookahead import LEARNING, LEVELS, LONG_QUEUE, Budget, Lookahead
from mirage.replay.closedloop import replay
from mirage.simulator.resume import Resumption
from mirage.simulator.simulation import Simulation

TRACE = trace(2, days=24, load=0.9)
START = int(TRACE.submit[0])
SERVICE = JobRequest("service", "we", limit=DAY, nodes=2, tag="t")
SMALL = Budget(screen=8, batch=16, most=48, first=48)


def seen(day: float, left: int, load: float = 0.9) -> tuple[Observation, SimulatedCluster]:
    """An observation in which the predecessor, on two nodes, has ``left`` seconds left."""
    table = TRACE if load == 0.9 else trace(2, days=24, load=load)
    world = SimulatedCluster(Simulation(CLUSTER, table, start=START + int(day * DAY)))
    number = world.submit(SERVICE)
    world.advance(int(world.start_times(SERVICE, np.array([world.now()]))[0]))
    while world.simulation.job(number).start < 0:
        world.advance(world.now() + 600)
    predecessor = world.simulation.job(number)
    world.advance(predecessor.end - left)
    snapshot = world.snapshot()
    history = world.jobs(60 * DAY)
    return Observation(
        world.now(), snapshot, world.simulation.job(number), SERVICE, RecentWaits.none(), history=history
    ), world


def scored(observation: Observation, **settings: object) -> ActionScores:
    answer = Lookahead(CLUSTER, budget=SMALL, **settings).predict(observation)  # type: ignore[arg-type]
    assert isinstance(answer, ActionScores)
    return answer


def test_the_same_observation_gives_the_same_answer() -> None:
    observation, _ = seen(12, HOUR)
    predictor = Lookahead(CLUSTER, seed=3, budget=SMALL)
    first = predictor.predict(observation)
    assert predictor.predict(observation) == first
    assert Lookahead(CLUSTER, seed=3, budget=SMALL).predict(observation) == first
    assert Lookahead(CLUSTER, seed=4, budget=SMALL).predict(observation) != first


def test_the_observation_is_left_as_it_was() -> None:
    observation, _ = seen(12, HOUR)
    before = deepcopy(observation)
    Lookahead(CLUSTER, budget=SMALL).predict(observation)
    assert np.array_equal(before.snapshot.pending.submit, observation.snapshot.pending.submit)
    assert before.history is not None
    assert observation.history is not None
    assert np.array_equal(before.history.end, observation.history.end)


def crowd(observation: Observation, many: int) -> Observation:
    """The same, behind ``many`` pending jobs, with different time limits and ascending priority."""
    one = observation.snapshot.running.take(np.zeros(many, dtype=np.int64))
    now, count = observation.time, np.arange(many)
    pending = replace(
        one,
        job_id=10**6 + count,
        submit=np.full(many, now - 60),
        eligible=np.full(many, now - 60),
        start=np.full(many, -1),
        limit=HOUR + count,
        priority=count,
    )
    return replace(observation, snapshot=replace(observation.snapshot, pending=pending))


def test_memory_does_not_grow_with_the_queue() -> None:
    """A user who submits job arrays chooses how many jobs wait."""
    observation, _ = seen(12, HOUR)
    observation = replace(observation, predecessor=None)
    peaks = []
    for many in (MOST_PENDING, 12 * MOST_PENDING):
        crowded = crowd(observation, many)
        tracemalloc.start()
        Lookahead(CLUSTER, budget=SMALL).predict(crowded)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] < 256 << 20


def test_of_a_queue_too_long_the_jobs_of_highest_priority_are_played() -> None:
    observation = crowd(seen(12, HOUR)[0], MOST_PENDING + 50)
    pending = observation.snapshot.pending
    foremost = replace(observation.snapshot, pending=pending.take(np.arange(50, len(pending))))
    few, all_ = (
        Outlook(each, Resumption(CLUSTER), 1, observation.time + DAY).starts(np.arange(2), np.array([each.time]))
        for each in (replace(observation, snapshot=foremost), observation)
    )
    assert few.tolist() == all_.tolist()


def test_scores_are_costs_and_come_with_a_forecast() -> None:
    answer = scored(seen(12, HOUR)[0])
    assert answer.submit <= 0.0
    assert answer.hold <= 0.0
    assert answer.forecast is not None
    assert answer.forecast.levels == LEVELS
    assert list(answer.forecast.starts) == sorted(answer.forecast.starts)


def test_dearer_overlap_makes_submitting_worse_where_it_would_overlap() -> None:
    observation, _ = seen(12, HOUR)
    even, dear = scored(observation), scored(observation, weights=Weights(overlap=3.0))
    assert dear.submit <= even.submit
    assert scored(observation, weights=Weights(interruption=0.0, overlap=0.0)).submit == 0.0


class Drawn:
    """An outlook with known starts, the same in every batch: one row a future, one column a submit time."""

    def __init__(self, starts: list[list[int]]) -> None:
        self._starts = np.array(starts)

    def starts(self, futures: np.ndarray, times: np.ndarray) -> np.ndarray:
        return self._starts[futures % len(self._starts)][:, np.searchsorted((0, 1800, END), times)]


END = 2 * HOUR


def weighed(*starts: list[int]) -> ActionScores:
    """The answer two hours before the end; the times tried are now, within half an hour, and the end."""
    return Lookahead(CLUSTER)._weigh(Drawn(list(starts)), 0, END)  # type: ignore[arg-type]


def test_luck_of_a_later_submission_is_nothing_to_wait_for() -> None:
    answer = weighed([END + HOUR, END, END + HOUR])
    assert answer.submit == answer.hold == -HOUR


def test_holding_is_worth_the_best_later_time_and_of_foresight_what_is_learnt_until_then() -> None:
    """Now: an hour's overlap. In half an hour: nothing or three hours late, evenly; at the end four late."""
    early, late = [END - HOUR, END, END + 4 * HOUR], [END - HOUR, END + 3 * HOUR, END + 4 * HOUR]
    answer = weighed(early, late)
    assert answer.submit == -HOUR
    assert answer.hold == pytest.approx(-1.5 * HOUR)
    split = weighed([END - HOUR, END - HOUR, END], [END - HOUR, END, END + 3 * HOUR])
    assert split.hold == pytest.approx(-np.exp(-1800 / LEARNING) * 0.5 * HOUR)


@pytest.mark.parametrize("load", [1.05, 1.1])
def test_planned_roughly_a_long_queue_waits_as_long_as_planned_with_care(load: float) -> None:
    observation, _ = seen(12, 4 * HOUR, load=load)
    assert len(observation.snapshot.pending) >= LONG_QUEUE
    now, until, futures = observation.time, observation.time + 10 * DAY, np.arange(40)
    rough = Lookahead(CLUSTER).outlook(observation, until).starts(futures, np.array([now])) - now
    careful = Outlook(observation, Resumption(CLUSTER), 0, until).starts(futures, np.array([now])) - now
    assert rough.mean() == pytest.approx(careful.mean(), rel=0.05)


def test_on_an_idle_cluster_it_is_too_early_and_the_start_is_now() -> None:
    observation, _ = seen(12, 20 * HOUR, load=0.05)
    answer = Lookahead(CLUSTER, budget=SMALL).predict(observation)
    assert isinstance(answer, WaitForecast)
    assert answer.at(0.5) - observation.time < 120


def test_much_too_early_it_does_not_look_again_at_once() -> None:
    observation, world = seen(12, 20 * HOUR, load=0.05)
    predictor = Lookahead(CLUSTER, budget=SMALL)
    first = predictor.predict(observation)

    def later(seconds: int) -> Observation:
        copy = world.copy()
        copy.advance(world.now() + seconds)
        return replace(observation, time=copy.now(), snapshot=copy.snapshot(), history=copy.jobs(60 * DAY))

    assert isinstance(first, WaitForecast)
    moved = tuple(start + 600 for start in first.starts)
    assert predictor.predict(later(600)) == replace(first, starts=moved), "the waits stay as long"
    (look,) = predictor._looks.values()
    assert look.made == observation.time
    predictor.predict(later(10 * HOUR))
    assert [each.made for each in predictor._looks.values()] != [observation.time]


def test_the_owners_fair_share_is_asked_where_it_counts_and_changes_the_forecast() -> None:
    assert not Lookahead(CLUSTER).wants.standing
    shared = replace(CLUSTER, priority=replace(CLUSTER.priority, fair_share=100_000))
    predictor = Lookahead(shared, budget=SMALL)
    assert predictor.wants.standing
    observation, _ = seen(12, HOUR, load=1.1)
    observation = replace(observation, predecessor=None)
    poor, rich = (
        predictor.predict(replace(observation, standing=Standing(fair_share=factor))) for factor in (0.0, 1.0)
    )
    assert isinstance(poor, WaitForecast)
    assert isinstance(rich, WaitForecast)
    assert rich.at(0.5) < poor.at(0.5) - DAY


def test_the_forecast_of_a_first_link_is_when_it_would_start() -> None:
    observation, world = seen(12, HOUR)
    answer = Lookahead(CLUSTER, budget=SMALL).predict(replace(observation, predecessor=None))
    assert isinstance(answer, WaitForecast)
    assert answer.starts[0] >= world.now()


def test_too_little_of_the_past_is_an_error() -> None:
    observation, _ = seen(12, HOUR)
    for history, words in ((None, "no jobs of the past"), (TRACE.take(np.arange(0)), "no jobs of the past")):
        with pytest.raises(ValueError, match=words):
            Lookahead(CLUSTER).predict(replace(observation, history=history))
    recent = observation.history
    assert recent is not None
    recent = recent.take(np.flatnonzero(recent.submit > observation.time - 3 * DAY))
    with pytest.raises(ValueError, match="less than a week"):
        Lookahead(CLUSTER).predict(replace(observation, history=recent))


def test_a_successor_that_the_cluster_would_refuse_is_an_error() -> None:
    observation, _ = seen(12, HOUR)
    with pytest.raises(SubmissionRejected):
        Lookahead(CLUSTER).predict(replace(observation, successor=replace(SERVICE, nodes=60)))


def test_forecasts_cover_what_happens() -> None:
    """P10 to P90 hold 80 % of the starts; over twelve looks at least half of them."""
    inside = 0
    for day in range(10, 22):
        observation, world = seen(day, HOUR)
        answer = Lookahead(CLUSTER, budget=Budget(first=40)).predict(replace(observation, predecessor=None))
        assert isinstance(answer, WaitForecast)
        start = int(world.start_times(SERVICE, np.array([world.now()]))[0])
        inside += answer.at(0.1) - 120 <= start <= answer.at(0.9) + 120
    assert inside >= 6


def test_in_closed_loop_it_comes_much_closer_than_submitting_at_the_end() -> None:
    settings = plan("reactive", "lookahead", "oracle", episodes=8, start=START + 12 * DAY)
    settings = replace(settings, end=settings.start + 7 * 9 * HOUR, tick=1_800)
    result = replay(TRACE, CLUSTER, settings)
    gaps = {
        policy: np.mean([abs(o.x) for o in result.outcomes if o.policy == policy]) for policy in settings.policies
    }
    assert not [note for note in result.notes if "no prediction" in note]
    assert gaps["lookahead"] - gaps["oracle"] <= 0.6 * (gaps["reactive"] - gaps["oracle"])

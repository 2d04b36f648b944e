"""The closed-loop replay against the plain simulator: every recorded handover is played again from nothing."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from small_trace import CLUSTER, DAY, HOUR, plan, trace

from mirage.cli.arguments import load_trace, parse_instant
from mirage.domain.errors import ConfigError, PluginNotFound, SubmissionRejected
from mirage.domain.job import JobState
from mirage.replay.closedloop import replay
from mirage.replay.episodes import GRID
from mirage.replay.plan import ReplayPlan
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.replay.results import PairOutcome, ReplayResult

POLICIES = ("reactive", "fixed:6h", "average", "quantile:0.9", "slurm", "oracle")


@pytest.fixture(scope="module")
def result() -> ReplayResult:
    return replay(trace(), CLUSTER, plan(*POLICIES))


def of(result: ReplayResult, policy: str) -> list[PairOutcome]:
    return [outcome for outcome in result.outcomes if outcome.policy == policy]


def starts_when_submitted(times: list[int], limit: int = DAY) -> list[int]:
    """Starts of links submitted at these times to a fresh simulation of the trace: no loop, no copies."""
    simulation, chain = Simulation(CLUSTER, trace()), plan(limit=limit).chain()
    ids = []
    for index, time in enumerate(times, start=1):
        simulation.run_until(time)
        ids.append(simulation.submit(chain.link_request(index), limit, JobState.TIMEOUT))
    while any(simulation.job(job_id).start < 0 for job_id in ids):
        simulation.run_until(simulation.now + HOUR)
    return [simulation.job(job_id).start for job_id in ids]


def test_every_policy_hands_over_in_every_episode(result: ReplayResult) -> None:
    assert len(result.outcomes) == len(POLICIES) * 6
    for policy in POLICIES:
        assert [o.episode for o in of(result, policy)] == list(range(6))
    assert any(o.x > HOUR for o in result.outcomes), "the cluster of this test must be contended"


def test_every_hand_over_is_what_the_simulator_does_with_these_submissions(result: ReplayResult) -> None:
    for o in result.outcomes:
        again = starts_when_submitted([o.predecessor_submit, o.successor_submit])
        assert again == [o.predecessor_start, o.successor_start], o


def test_all_policies_share_the_predecessor(result: ReplayResult) -> None:
    for number in range(6):
        firsts = {
            (o.predecessor_submit, o.predecessor_start, o.predecessor_end)
            for o in result.outcomes
            if o.episode == number
        }
        assert len(firsts) == 1
        ((submit, start, end),) = firsts
        assert submit == result.start + number * result.every
        assert end - start == result.limit


def test_reactive_and_fixed_submit_when_they_must(result: ReplayResult) -> None:
    for o in of(result, "reactive"):
        assert o.successor_submit == o.predecessor_end
        assert o.overlap == 0
    for o in of(result, "fixed:6h"):
        assert o.predecessor_end - o.successor_submit == 6 * HOUR


def test_the_average_policy_recomputed_from_a_schedule(result: ReplayResult) -> None:
    """The first tick at which now + mean wait of the last 100 starts reaches the end, by plain numpy."""
    for o in of(result, "average"):
        simulation = Simulation(CLUSTER, trace())
        simulation.run_until(o.predecessor_submit)
        simulation.submit(plan().chain().link_request(1), DAY, JobState.TIMEOUT)
        simulation.run_until(o.predecessor_end)
        start = np.append(simulation.schedule()["start"], o.predecessor_start)
        wait = start - np.append(trace().submit, o.predecessor_submit)

        def mean_wait(now: int, start: np.ndarray = start, wait: np.ndarray = wait) -> float:
            latest = np.sort(start[start <= now])[-100:]
            return float(wait[(start >= latest[0]) & (start <= now)].mean())

        ticks = range(o.predecessor_start, o.predecessor_end, 600)
        first = next((t for t in ticks if t + mean_wait(t) >= o.predecessor_end), o.predecessor_end)
        assert abs(o.successor_submit - first) <= 600, "one tick of slack for ties at the 100th start"


def test_the_oracle_keeps_its_word(result: ReplayResult) -> None:
    """No submission time on the grid, each tried on a fresh simulation, does better."""
    for o in of(result, "oracle")[:2]:
        for time in range(o.predecessor_start, o.predecessor_end + 1, 4 * GRID):
            start = starts_when_submitted([o.predecessor_submit, time])[1]
            assert abs(start - o.predecessor_end) >= abs(o.x)


def test_no_policy_that_ticks_beats_the_oracle_by_much(result: ReplayResult) -> None:
    cost = {policy: sum(abs(o.x) for o in of(result, policy)) for policy in POLICIES}
    assert cost["oracle"] <= min(cost.values())


def test_the_queue_is_the_traces_own(result: ReplayResult) -> None:
    queue = result.queue
    assert queue.time[0] == result.start
    assert set(np.diff(queue.time)) == {HOUR}
    assert queue.time[-1] <= result.end < queue.time[-1] + HOUR
    simulation = Simulation(CLUSTER, trace())
    simulation.run()
    start, end = simulation.schedule()["start"], simulation.schedule()["end"]
    nodes, submit = trace().nodes, trace().submit
    for i in range(0, len(queue.time), 7):
        now = queue.time[i]
        assert queue.busy_nodes[i] == nodes[(start <= now) & (now < end)].sum()
        assert queue.pending_jobs[i] == ((submit <= now) & (start > now)).sum()


def test_the_same_again_and_with_processes(result: ReplayResult) -> None:
    again = replay(trace(), CLUSTER, plan(*POLICIES), workers=2)
    assert json.dumps(again.to_json()) == json.dumps(result.to_json())


def test_longer_chains_hand_over_each_pair() -> None:
    result = replay(trace(), CLUSTER, plan("reactive", "fixed:6h", "oracle", episodes=2, links=4, limit=12 * HOUR))
    for policy in result.policies:
        outcomes = of(result, policy)
        assert [(o.episode, o.pair) for o in outcomes] == [(e, p) for e in range(2) for p in range(3)]
        for before, after in itertools.pairwise(outcomes):
            if before.episode == after.episode:
                assert after.predecessor_start == before.successor_start
    first = of(result, "fixed:6h")[:3]
    times = [first[0].predecessor_submit, *(o.successor_submit for o in first)]
    starts = [first[0].predecessor_start, *(o.successor_start for o in first)]
    assert starts_when_submitted(times, 12 * HOUR) == starts


def test_a_tick_that_does_not_divide_anything_still_ends_on_time() -> None:
    result = replay(trace(), CLUSTER, plan("reactive", "oracle", episodes=2, tick=17 * 60))
    assert all(o.successor_submit == o.predecessor_end for o in of(result, "reactive"))


def test_what_the_reader_must_know_is_said() -> None:
    late = 1_000_000 + 18 * DAY
    result = replay(trace(), CLUSTER, plan("reactive", start=late, end=late))
    assert "after the last submission of the trace" in " ".join(result.notes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"start": 5, "end": 6}, "--start"),
        ({"start": 10**9, "end": 10**9}, "--start"),
        ({"end": 1_000_000}, "--end"),
        ({"every": 0}, "--every"),
        ({"links": 1}, "--links"),
    ],
)
def test_a_plan_that_cannot_be_played_names_the_option(changes: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replay(trace(), CLUSTER, plan("reactive", **changes))


def test_unknown_policies_and_impossible_jobs_are_refused() -> None:
    with pytest.raises(PluginNotFound, match="oracle"):
        replay(trace(), CLUSTER, plan("reactive", "astrology"))
    with pytest.raises(SubmissionRejected):
        replay(trace(), CLUSTER, plan("reactive", nodes=7))


@pytest.mark.shared
def test_a_published_log_in_a_contended_month(shared: Path) -> None:
    """Lonestar6 in February 2023: the reactive policy waits for hours, the oracle hardly at all."""
    log = load_trace(str(shared / "traces" / "ls6-a100-to-2023-02.log.gz"))
    day = parse_instant("2023-02-03", "--start")
    settings = ReplayPlan(("reactive", "quantile", "oracle"), 1, 2 * DAY, day, day + DAY, 12 * HOUR)
    result = replay(log, load_cluster("ls6"), settings)
    hours = {policy: np.mean([abs(o.x) for o in of(result, policy)]) / HOUR for policy in result.policies}
    assert hours["reactive"] > 2
    assert hours["oracle"] < 0.5 * hours["reactive"]
    assert hours["oracle"] <= hours["quantile"]
    assert result.rejected_jobs < 20

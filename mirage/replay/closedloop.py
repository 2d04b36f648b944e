"""The closed-loop replay: one warm simulation in time order, an episode every N seconds, all policies on each."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.bounds import format_instant
from mirage.domain.decision import Wants
from mirage.ownprocess import spawning
from mirage.replay.episodes import Background, EpisodeResult, play_episode, policy_predictor
from mirage.replay.results import QueueHistory, ReplayResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.replay.plan import ReplayPlan
    from mirage.simulator.cluster import ClusterConfig
    from mirage.simulator.simulation import Simulation

SAMPLE_EVERY = 3_600
"""Seconds between samples of the queue."""

QueueSample = tuple[int, int, int, int]
"""time, pending jobs, pending nodes, busy nodes"""


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode of every policy, and the queue since the one before."""

    number: int
    played: tuple[EpisodeResult, ...]
    """In the order of the plan's policies."""
    queue: tuple[QueueSample, ...]
    rejected: int
    """Jobs of the trace that the cluster has rejected."""


class TraceSimulation:
    """The trace's own simulation, which moves from episode to episode and never sees the service."""

    def __init__(self, trace: JobTable, cluster: ClusterConfig, plan: ReplayPlan) -> None:
        self._background = Background(trace, cluster, watched=_wants(plan).window)
        self._plan = plan

    def episode(self, number: int) -> Episode:
        """Play one episode. Numbers must ascend from call to call."""
        starts = self._plan.episode_starts()
        queue = tuple(self._sampled(starts[number - 1] if number else starts[0] - 1, starts[number]))
        self._background.run_until(starts[number])
        played = play_episode(self._background, self._plan, number)
        return Episode(number, played, queue, sum(self._background.simulation.rejected.values()))

    def _sampled(self, after: Seconds, upto: Seconds) -> Iterator[QueueSample]:
        first = self._plan.start
        for time in range(first + -(-(after + 1 - first) // SAMPLE_EVERY) * SAMPLE_EVERY, upto + 1, SAMPLE_EVERY):
            self._background.run_until(time)
            yield _sample(self._background.simulation)


def _wants(plan: ReplayPlan) -> Wants:
    """Union of the inputs that the policies require."""
    return reduce(or_, (policy_predictor(policy, plan, None).wants for policy in plan.policies), Wants())


def replay(
    trace: JobTable,
    cluster: ClusterConfig,
    plan: ReplayPlan,
    *,
    workers: int = 1,
    on_episode: Callable[[int, int], None] = lambda done, total: None,
) -> ReplayResult:
    """Play every episode of the plan with every policy.

    The result does not depend on ``workers`` (processes). After each episode ``on_episode`` receives the number of
    finished episodes and their total. Raises ``ConfigError`` for a plan that does not fit the trace,
    ``PluginNotFound`` for an unknown policy, ``SubmissionRejected`` where the cluster rejects its job and
    ``TraceError`` where it rejects every job of the trace.
    """
    plan.check(trace)
    for policy in plan.policies:
        policy_predictor(policy, plan, None)
    total, episodes = len(plan.episode_starts()), []
    for episode in _episodes(trace, cluster, plan, min(workers, total)):
        episodes.append(episode)
        on_episode(len(episodes), total)
    return _result(trace, cluster, plan, episodes)


def _episodes(trace: JobTable, cluster: ClusterConfig, plan: ReplayPlan, workers: int) -> Iterator[Episode]:
    numbers = range(len(plan.episode_starts()))
    stage = TraceSimulation(trace, cluster, plan)  # also with workers: what is wrong with the trace is raised here
    if workers <= 1:
        yield from map(stage.episode, numbers)
        return
    # Each process simulates the trace for itself: that costs less than sending its state around. Processes are
    # started afresh: forking one that has threads (a progress bar) is not safe.
    setting = (trace, cluster, plan)
    with ProcessPoolExecutor(workers, spawning(), _set_stage, setting) as pool:
        yield from pool.map(_episode, numbers)


_stage: list[TraceSimulation] = []
"""The stage of this worker process; its initialiser fills it."""


def _set_stage(trace: JobTable, cluster: ClusterConfig, plan: ReplayPlan) -> None:
    _stage.append(TraceSimulation(trace, cluster, plan))


def _episode(number: int) -> Episode:
    return _stage[0].episode(number)


def _sample(simulation: Simulation) -> QueueSample:
    pending, running = simulation.columns()
    return simulation.now, len(pending), int(pending.nodes.sum()), int(running.nodes.sum())


def _result(trace: JobTable, cluster: ClusterConfig, plan: ReplayPlan, episodes: list[Episode]) -> ReplayResult:
    played = [one for episode in episodes for one in episode.played]
    return ReplayResult(
        trace=trace.source,
        cluster=cluster.name,
        nodes=plan.nodes,
        limit=plan.limit,
        policies=plan.policies,
        outcomes=tuple(outcome for one in played for outcome in one.outcomes),
        queue=_history(episodes, cluster.node_count),
        rejected_jobs=episodes[-1].rejected,
        seed=plan.seed,
        start=plan.start,
        end=plan.end,
        every=plan.every,
        tick=plan.tick,
        links=plan.links,
        overlap_price=plan.weights.overlap / plan.weights.interruption,
        notes=(
            *trace.notes,
            *_rejection_note(trace, cluster, episodes[-1].rejected),
            *_arrivals_note(trace, plan, played),
            *_troubles(plan, episodes),
        ),
    )


def _history(episodes: list[Episode], nodes: int) -> QueueHistory:
    rows = np.array([row for episode in episodes for row in episode.queue], dtype=np.int64).reshape(-1, 4)
    time, jobs, wanted, busy = rows.T
    return QueueHistory(time, jobs, wanted, np.minimum(busy, nodes), nodes)


def _rejection_note(trace: JobTable, cluster: ClusterConfig, rejected: int) -> Iterator[str]:
    if rejected:
        yield f"cluster {cluster.name} rejects {rejected:,} of {len(trace):,} jobs: the simulated load is lower"


def _arrivals_note(trace: JobTable, plan: ReplayPlan, played: list[EpisodeResult]) -> tuple[str, ...]:
    """Says when handovers lie beyond the trace, where the queue only empties."""
    last = int(trace.submit[-1])
    ends = [outcome.successor_start for one in played for outcome in one.outcomes]
    beyond = sum(end > last for end in ends)
    if not beyond:
        return ()
    return (
        f"{beyond} of {len(ends)} successors start after the last submission of the trace, {format_instant(last)}",
    )


def _troubles(plan: ReplayPlan, episodes: list[Episode]) -> tuple[str, ...]:
    """Problems of the policies, each sentence once for each policy, with its number of occurrences."""
    counts = Counter(
        (policy, text)
        for episode in episodes
        for policy, one in zip(plan.policies, episode.played, strict=True)
        for text in one.troubles
    )
    return tuple(f"{policy}: {text} ({count} times)" for (policy, text), count in counts.items())

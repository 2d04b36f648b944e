"""One episode: the same time of the same cluster, played once by each policy and by the clairvoyant baseline.

It begins with the trace's own cluster up to a time, then the service's first link on a copy. The baseline knows
what every submission time would lead to, and takes the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from mirage.backends.simulated import SimulatedCluster
from mirage.control.clocks import SimulatedTicks
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal, MemoryStore, NoFiles
from mirage.domain.chain import ChainRecord
from mirage.domain.decision import ActionScores, Wants
from mirage.domain.job import NEVER
from mirage.domain.journal import EntryKind
from mirage.domain.objective import Outcome, objective
from mirage.features.summary import LENGTH, SPACING, QueueWindows
from mirage.predictors.auto import Auto, Candidates
from mirage.predictors.baselines import Reactive
from mirage.predictors.lookahead import Lookahead
from mirage.predictors.members import AUTO
from mirage.predictors.registry import NONE, build_predictor
from mirage.provisioner.decide import DecisionRule
from mirage.provisioner.limits import Limits
from mirage.replay.plan import split_policy
from mirage.replay.results import PairOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.chain import Chain
    from mirage.domain.decision import Observation
    from mirage.domain.job import JobId, JobRequest, Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.domain.objective import Weights
    from mirage.ports import Predictor
    from mirage.predictors.registry import Factory
    from mirage.replay.plan import ReplayPlan
    from mirage.simulator.cluster import ClusterConfig

Int64 = NDArray[np.int64]

GRID = 30 * 60
"""Seconds between the first candidate submission times; around the best of them every tick is tried."""

_NEVER_BETTER = float("-inf")


class StartTimeSource(Protocol):
    """Runs the future once for each submission time."""

    def start_times(self, request: JobRequest, submit_times: Int64) -> Int64:
        """When the job would start if submitted at each of these times (ascending, not before now)."""


class Oracle:
    """The floor for policies that submit once, before the predecessor's end: best of a grid, pair by pair.

    Not a bound in the strict sense: between grid points a start may be luckier, and a longer chain is taken
    one handover at a time.
    """

    name = "oracle"
    wants = Wants()

    def __init__(self, foresight: StartTimeSource, weights: Weights, tick: Seconds) -> None:
        self._foresight = foresight
        self._weights = weights
        self._tick = tick
        self._predecessor: JobId | None = None
        self._scores: dict[Seconds, float] = {}

    def predict(self, observation: Observation) -> ActionScores:
        """The objective of submitting now, and the best objective of any later time tried."""
        predecessor = observation.predecessor
        assert predecessor is not None
        if predecessor.job_id != self._predecessor:
            self._scores = self._look_ahead(observation.time, predecessor.end, observation.successor)
            self._predecessor = predecessor.job_id
        now = observation.time
        later = (score for time, score in self._scores.items() if time > now)
        return ActionScores(self._scores.get(now, _NEVER_BETTER), max(later, default=_NEVER_BETTER))

    def _look_ahead(self, now: Seconds, end: Seconds, request: JobRequest) -> dict[Seconds, float]:
        step = max(1, GRID // self._tick) * self._tick
        scores = self._try(np.append(np.arange(now, end, step), end), end, request)
        best = max(scores, key=scores.__getitem__)
        around = np.arange(max(now, best - step), min(end, best + step) + 1, self._tick)
        fresh = np.array([time for time in around if time not in scores], dtype=np.int64)
        return scores | self._try(fresh, end, request)

    def _try(self, times: Int64, end: Seconds, request: JobRequest) -> dict[Seconds, float]:
        starts = self._foresight.start_times(request, times)
        return {
            int(time): objective(Outcome(end, int(start)), self._weights)
            for time, start in zip(times, starts, strict=True)
        }


PATIENCE = 30 * 86_400
"""Maximum wait of one link before the episode is abandoned (s)."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The time at which the first link has just started."""

    cluster: SimulatedCluster
    windows: QueueWindows
    """The queue's last day, on the way here; empty where it is not watched."""

    def copy(self) -> Opening:
        """Return a copy whose cluster and windows can advance independently."""
        return Opening(self.cluster.copy(), self.windows.copy())


class Background:
    """The trace's own simulation, which only moves forward and never sees the service."""

    def __init__(self, trace: JobTable, cluster: ClusterConfig, *, watched: bool) -> None:
        """``watched``: keep windows of the queue."""
        from mirage.simulator.simulation import Simulation

        # Users with jobs had an account then, whatever the cluster has today; and it never had the service's user.
        self.simulation = Simulation(replace(cluster, enforce_associations=False), trace)
        self._watched = watched
        self._windows = QueueWindows()

    def run_until(self, time: Seconds) -> None:
        """Let everything happen that is due by ``time``."""
        _advance(SimulatedCluster(self.simulation), self._windows, time, watched=self._watched)

    def open(self, chain: Chain) -> Opening | None:
        """The chain's first link submitted now on a copy, which is then run until that link starts.

        ``None`` where it would wait longer than ``PATIENCE``. Raises ``SubmissionRejected`` where the cluster
        rejects the link.
        """
        opening = Opening(SimulatedCluster(self.simulation.copy(results=True)), self._windows.copy())
        cluster, request = opening.cluster, chain.link_request(1)
        (start,) = cluster.start_times(request, np.array([cluster.now()]))
        cluster.submit(request)
        if start == NEVER:
            return None
        _advance(cluster, opening.windows, int(start), watched=self._watched)
        return opening


def _advance(cluster: SimulatedCluster, windows: QueueWindows, until: Seconds, *, watched: bool) -> None:
    """Advance, looking at the queue on the way as often as windows have rows, for as long as they reach back."""
    if watched:
        first = max(cluster.now(), until - LENGTH * SPACING) // SPACING + 1
        for time in range(first * SPACING, until + 1, SPACING):
            cluster.advance(time)
            windows.add(cluster.snapshot())
    cluster.advance(until)


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """Result of one policy in one episode."""

    outcomes: tuple[PairOutcome, ...]
    troubles: tuple[str, ...]
    """Problems on the way: predictors that failed, submissions that were rejected."""


def play_episode(background: Background, plan: ReplayPlan, number: int) -> tuple[EpisodeResult, ...]:
    """Each policy's handovers in the episode that begins now; the background is not changed.

    The service's user submits the first link now and waits for it to start; from there every policy continues
    alone, on a separate copy of the cluster. Raises ``SubmissionRejected`` where the cluster rejects such a link.
    """
    begin = background.simulation.now
    opening = background.open(plan.chain())
    if opening is None:
        text = f"no first link: submitted at {begin} it would not start within {PATIENCE // 86_400} days"
        return tuple(EpisodeResult((), (text,)) for _ in plan.policies)
    return tuple(_play(opening.copy(), plan, name, number, begin) for name in plan.policies)


def _play(opening: Opening, plan: ReplayPlan, policy: str, number: int, begin: Seconds) -> EpisodeResult:
    cluster = opening.cluster
    predictor = policy_predictor(policy, plan, cluster, cluster.simulation.cluster)
    record, troubles = keep_alive(opening, plan.chain(*split_policy(policy)[1:]), plan, predictor)
    return EpisodeResult(_outcomes(record, policy, number, begin), troubles)


def keep_alive(
    opening: Opening, chain: Chain, plan: ReplayPlan, predictor: Predictor
) -> tuple[ChainRecord, tuple[str, ...]]:
    """The chain as the control loop has it with this predictor until its last handover, and what went wrong.

    The opening is used up.
    """
    journal, cluster = MemoryJournal(), opening.cluster
    store = MemoryStore(ChainRecord(chain), journal=journal)
    outside = LoopDependencies(
        cluster,
        cluster,
        cluster,
        cluster,
        cluster,
        store,
        journal,
        NoFiles(),
        history=cluster,
        standings=cluster,
        sharing=cluster,
        windows=opening.windows,
    )
    policy = LoopSettings(DecisionRule(level=plan.weights.critical_level), Limits(), settle=plan.tick)
    loop = ControlLoop(outside, Guards(PredictorGuard(predictor, Reactive())), policy)
    until = cluster.now() + plan.links * (plan.limit + PATIENCE)
    loop.run(SimulatedTicks(cluster, plan.tick, until), lambda: _handed_over(store) == plan.links - 1)
    (record,) = store.load()
    return record, journal.texts(EntryKind.TROUBLE)


def policy_predictor(
    policy: str,
    plan: ReplayPlan,
    future: StartTimeSource | None,
    cluster: ClusterConfig | None = None,
    extra: Mapping[str, Factory] = NONE,
) -> Predictor:
    """The predictor that a policy names; ``oracle`` looks into ``future``, ``lookahead`` simulates ``cluster``.

    ``extra`` offers further names.

    ``future=None`` only checks the name. Raises ``PluginNotFound`` and ``ConfigError``.
    """

    def oracle(parameter: str) -> Predictor:
        if parameter:
            raise ValueError("takes no parameter")
        return Oracle(future, plan.weights, plan.tick) if future is not None else Reactive()

    def lookahead(parameter: str) -> Predictor:
        if parameter:
            raise ValueError("takes no parameter")
        return Lookahead(cluster, plan.seed, plan.weights) if cluster is not None else Reactive()

    names = {Oracle.name: oracle, Lookahead.name: lookahead, **extra}
    if policy == AUTO and cluster is not None:
        return _best_at_hand(cluster, plan)
    return build_predictor(split_policy(policy)[0], names, plan.weights)


def _best_at_hand(cluster: ClusterConfig, plan: ReplayPlan) -> Predictor:
    """The predictor that ``auto`` chooses in a daemon that knows its cluster and has no trained model."""
    if cluster.priority.shares_outweigh_age:
        found = Candidates.none_helps()
    else:
        found = Candidates((Lookahead(cluster, plan.seed, plan.weights),))
    return Auto(found, build_predictor("quantile"), plan.weights)


def _handed_over(store: MemoryStore) -> int:
    (record,) = store.load()
    return len(record.outcomes())


def _outcomes(record: ChainRecord, policy: str, number: int, begin: Seconds) -> tuple[PairOutcome, ...]:
    links = [link for link in record.links if link.started]
    return tuple(
        PairOutcome(
            policy=policy,
            episode=number,
            episode_start=begin,
            pair=pair,
            predecessor_submit=before.submit,
            predecessor_start=before.start,
            predecessor_end=before.end,
            successor_submit=after.submit,
            successor_start=after.start,
            decision=after.reason,
        )
        for pair, (before, after) in enumerate(pairwise(links))
        if before.final
    )

"""One episode: the same time of the same cluster, played once by each policy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mirage.control.guard import Guard, Guards
from mirage.control.journal import MemoryJournal
from mirage.control.loop import ControlLoop
from mirage.control.memory import MemoryStore, NoFiles
from mirage.control.outside import Outside, Policy
from mirage.control.ticks import SimulatedTicks
from mirage.domain.chain import ChainRecord
from mirage.domain.journal import EntryKind
from mirage.predictors.auto import Auto, Candidates
from mirage.predictors.lookahead import Lookahead
from mirage.predictors.members import AUTO
from mirage.predictors.reactive import Reactive
from mirage.predictors.registry import NONE, build_predictor
from mirage.provisioner.decide import DecisionRule
from mirage.provisioner.limits import Limits
from mirage.replay.opening import PATIENCE
from mirage.replay.oracle import Oracle
from mirage.replay.outcome import PairOutcome
from mirage.replay.plan import split_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.chain import Chain
    from mirage.domain.job import Seconds
    from mirage.ports import Predictor
    from mirage.predictors.registry import Factory
    from mirage.replay.opening import Background, Opening
    from mirage.replay.oracle import Foresight
    from mirage.replay.plan import ReplayPlan
    from mirage.simulator.cluster import ClusterConfig


@dataclass(frozen=True, slots=True)
class Played:
    """Result of one policy in one episode."""

    outcomes: tuple[PairOutcome, ...]
    troubles: tuple[str, ...]
    """Problems on the way: predictors that failed, submissions that were rejected."""


def play_episode(background: Background, plan: ReplayPlan, number: int) -> tuple[Played, ...]:
    """Each policy's handovers in the episode that begins now; the background is not changed.

    The service's user submits the first link now and waits for it to start; from there every policy continues
    alone, on a separate copy of the cluster. Raises ``SubmissionRejected`` where the cluster rejects such a link.
    """
    begin = background.simulation.now
    opening = background.open(plan.chain())
    if opening is None:
        text = f"no first link: submitted at {begin} it would not start within {PATIENCE // 86_400} days"
        return tuple(Played((), (text,)) for _ in plan.policies)
    return tuple(_play(opening.copy(), plan, name, number, begin) for name in plan.policies)


def _play(opening: Opening, plan: ReplayPlan, policy: str, number: int, begin: Seconds) -> Played:
    cluster = opening.cluster
    predictor = policy_predictor(policy, plan, cluster, cluster.simulation.cluster)
    record, troubles = keep_alive(opening, plan.chain(*split_policy(policy)[1:]), plan, predictor)
    return Played(_outcomes(record, policy, number, begin), troubles)


def keep_alive(
    opening: Opening, chain: Chain, plan: ReplayPlan, predictor: Predictor
) -> tuple[ChainRecord, tuple[str, ...]]:
    """The chain as the control loop has it with this predictor until its last handover, and what went wrong.

    The opening is used up.
    """
    journal, cluster = MemoryJournal(), opening.cluster
    store = MemoryStore(ChainRecord(chain), journal=journal)
    outside = Outside(
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
    policy = Policy(DecisionRule(level=plan.weights.critical_level), Limits(), settle=plan.tick)
    loop = ControlLoop(outside, Guards(Guard(predictor, Reactive())), policy)
    until = cluster.now() + plan.links * (plan.limit + PATIENCE)
    loop.run(SimulatedTicks(cluster, plan.tick, until), lambda: _handed_over(store) == plan.links - 1)
    (record,) = store.load()
    return record, journal.texts(EntryKind.TROUBLE)


def policy_predictor(
    policy: str,
    plan: ReplayPlan,
    future: Foresight | None,
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

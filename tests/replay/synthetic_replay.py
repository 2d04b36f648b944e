"""Replays made up from a wait that drifts over weeks: light, medium and heavy load, policies good and bad."""

from __future__ import annotations

import numpy as np

from mirage.replay.results import PairOutcome, QueueHistory, ReplayResult

FIRST = 1_675_209_600
"""2023-02-01 UTC."""
HOUR = 3_600
LIMIT = 48 * HOUR
POLICIES = ("reactive", "fixed:6h", "average", "quantile:0.5", "slurm", "oracle")


def synthetic_replay(
    policies: tuple[str, ...] = POLICIES,
    *,
    episodes: int = 150,
    links: int = 2,
    seed: int = 7,
    trace: str = "generated:ls6:7",
    first: int = FIRST,
) -> ReplayResult:
    """A replay whose successors wait as long as a smooth random load says, plus noise."""
    rng = np.random.default_rng(seed)
    waits = _waits(rng, episodes + 24 * links) * HOUR
    outcomes = [
        pair
        for policy in policies
        for episode in range(episodes)
        for pair in _chain(policy, episode, waits[episode::12], links, rng, first)
    ]
    return ReplayResult(
        trace=trace,
        cluster="ls6",
        nodes=1,
        limit=LIMIT,
        policies=policies,
        outcomes=tuple(outcomes),
        queue=_queue(waits / HOUR, first),
        rejected_jobs=3,
        seed=seed,
        start=first,
        end=first + episodes * 4 * HOUR,
        every=4 * HOUR,
        tick=600,
        links=links,
        overlap_price=1.0,
        notes=("3 jobs asked for more nodes than the cluster has and were rejected.",),
    )


def _waits(rng: np.random.Generator, count: int) -> np.ndarray:
    """Hours; busy and quiet weeks, and a first-order autoregression over 4-hour steps, cut at zero."""
    level = np.full(count, rng.normal())
    for i in range(1, count):
        level[i] = 0.95 * level[i - 1] + np.sqrt(1 - 0.95**2) * rng.normal()
    return np.maximum(0, np.exp(level + 1.2 + 1.5 * np.sin(np.arange(count) / 11)) - 1.5)


def _chain(
    policy: str, episode: int, waits: np.ndarray, links: int, rng: np.random.Generator, first: int
) -> list[PairOutcome]:
    submit = begun = first + episode * 4 * HOUR
    start = submit + int(waits[0] / 2)
    pairs = []
    for pair in range(links - 1):
        end, wait = start + LIMIT, int(waits[min(pair + 1, len(waits) - 1)])
        asked = end - _lead(policy, wait, rng)
        begin = max(submit, asked) + wait
        pairs.append(
            PairOutcome(policy, episode, begun, pair, submit, start, end, asked, begin, f"{policy} submits")
        )
        submit, start = asked, max(begin, end)
    return pairs


def _lead(policy: str, wait: int, rng: np.random.Generator) -> int:
    """Seconds before the predecessor's end at which a policy submits."""
    error = {"oracle": 0.0, "slurm": 1.5, "quantile:0.5": 0.5, "average": 0.9}.get(policy, 0.7)
    if policy == "reactive":
        return 0
    if policy.startswith("fixed"):
        return 6 * HOUR
    return int(wait * np.exp(error * rng.normal()) // 1800 * 1800)


def _queue(waits: np.ndarray, first: int) -> QueueHistory:
    count = len(waits)
    return QueueHistory(
        time=first + 4 * HOUR * np.arange(count, dtype=np.int64),
        pending_jobs=(4 * waits).astype(np.int64),
        pending_nodes=(9 * waits).astype(np.int64),
        busy_nodes=np.minimum(76, 50 + 6 * waits).astype(np.int64),
        total_nodes=76,
    )

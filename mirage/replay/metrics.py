"""Metrics of each policy in a replay: interruption, overlap, their cost, and confidence intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.objective import ZERO_WITHIN, Outcome, Weights, objective
from mirage.replay.intervals import (
    Floats,
    IntervalEstimate,
    Mask,
    Resamples,
    Resampling,
    resample_episodes,
    weighted_mean,
    weighted_quantile,
)
from mirage.replay.results import ORACLE, REACTIVE, Ints, LoadClass, Panel, build_panel

if TYPE_CHECKING:
    from mirage.replay.results import ReplayResult

CLOSE_WITHIN = 30 * 60
"""Seconds either way within which a handover counts as close."""

PRICES = (Weights(interruption=1.0, overlap=1.0), Weights(interruption=1.0, overlap=0.5))
"""Prices e_I and e_O at which costs are reported."""

ALL = "all"
"""Name of the whole, next to the load classes."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean cost of a handover in hours of interruption, one hour of overlap costing ``overlap_weight``."""

    overlap_weight: float
    hours: IntervalEstimate


@dataclass(frozen=True, slots=True)
class PolicyMetrics:
    """One policy on the pairs of one load class (or on all). Times are in hours, shares between 0 and 1."""

    policy: str
    load: str
    """``all`` or a ``LoadClass``."""
    pairs: int
    interruption_mean: IntervalEstimate
    interruption_median: IntervalEstimate
    interruption_p90: IntervalEstimate
    overlap_mean: IntervalEstimate
    distance_mean: IntervalEstimate
    """Mean |x|: how far the successor's start is from the predecessor's end, either way."""
    uninterrupted_share: IntervalEstimate
    """Pairs with an interruption of at most ``ZERO_WITHIN``."""
    close_share: IntervalEstimate
    """Pairs with |x| of at most ``CLOSE_WITHIN``."""
    costs: tuple[Cost, ...]
    reduction: IntervalEstimate | None
    """1 - mean interruption / the reactive policy's; ``None`` without that policy."""
    regret: IntervalEstimate | None
    """Mean |x| above the oracle's, hours; ``None`` without an oracle."""
    gap_closed: IntervalEstimate | None
    """Share of the way from reactive to oracle in mean |x|; ``None`` unless both were replayed."""


@dataclass(frozen=True, slots=True)
class ReplayMetrics:
    """Metrics of every policy, on all pairs and by load class."""

    policies: tuple[str, ...]
    rows: tuple[PolicyMetrics, ...]
    episodes: int
    classes: tuple[tuple[LoadClass, int], ...]
    """Load classes that occur, each with its number of episodes."""
    dropped: int
    """Pairs left out because some policy has no outcome for them."""
    block_episodes: int
    """Consecutive episodes drawn together for the intervals."""
    resampling: Resampling

    def row(self, policy: str, load: str = ALL) -> PolicyMetrics:
        """Metrics of one policy in one load class. Raises ``KeyError`` if the replay has none."""
        for row in self.rows:
            if row.policy == policy and row.load == load:
                return row
        raise KeyError((policy, load))

    def of_load(self, load: str = ALL) -> tuple[PolicyMetrics, ...]:
        """Metrics of every policy on one class, in the order the policies were named."""
        return tuple(row for row in self.rows if row.load == load)

    def to_json(self) -> dict[str, object]:
        """The metrics as values for ``json.dumps``; ``None`` where a statistic is undetermined."""
        return {
            "units": "hours; shares and reductions are fractions",
            "episodes": self.episodes,
            "pairs_left_out": self.dropped,
            "load_classes": {str(load): count for load, count in self.classes},
            "zero_within_s": ZERO_WITHIN,
            "close_within_s": CLOSE_WITHIN,
            "intervals": asdict(self.resampling) | {"block_episodes": self.block_episodes},
            "rows": [for_json(asdict(row)) for row in self.rows],
        }


def measure(result: ReplayResult, how: Resampling | None = None) -> ReplayMetrics:
    """Metrics of a replay, by policy and load class, with block-bootstrap intervals."""
    return measure_panel(build_panel(result.policies, result.outcomes), how or Resampling(seed=result.seed))


def replay_document(result: ReplayResult, metrics: ReplayMetrics) -> dict[str, object]:
    """The whole replay as one document for ``json.dumps``: settings, outcomes, queue, and the metrics."""
    return result.to_json() | {"metrics": metrics.to_json()}


def measure_panel(panel: Panel, how: Resampling) -> ReplayMetrics:
    """Compute the metrics of ``measure`` from a panel, with bootstrap intervals by ``how``."""
    resamples = resample_episodes(panel.starts, how)
    loads: tuple[LoadClass | None, ...] = (None, *panel.classes)
    return ReplayMetrics(
        policies=panel.policies,
        rows=tuple(row for load in loads for row in _measure_load(panel, resamples, load)),
        episodes=len(panel.starts),
        classes=tuple((load, panel.load.count(load)) for load in panel.classes),
        dropped=panel.dropped,
        block_episodes=resamples.length,
        resampling=how,
    )


@dataclass(frozen=True, slots=True)
class _Sample:
    """The pairs of one load class: x by policy, and each pair's weight in the data and every resample."""

    x: dict[str, Ints]
    """Seconds."""
    weights: Floats
    blocks: float
    resamples: Resamples

    def hours(self, policy: str) -> Floats:
        return np.asarray(self.x[policy] / 3_600)

    def mean(self, values: Floats) -> Floats:
        return weighted_mean(values, self.weights)

    def estimate(self, replicates: Floats) -> IntervalEstimate:
        return self.resamples.estimate(replicates, self.blocks)

    def quantile(self, values: Floats, q: float) -> IntervalEstimate:
        return self.estimate(weighted_quantile(values, self.weights, q))

    def share(self, members: Mask) -> IntervalEstimate:
        return self.estimate(self.mean(members.astype(np.float64)))


def _measure_load(panel: Panel, resamples: Resamples, load: LoadClass | None) -> list[PolicyMetrics]:
    rows = panel.within(load)
    sample = _Sample(
        x={name: panel.row(name)[rows] for name in panel.policies},
        weights=resamples.of(panel.episode[rows]),
        blocks=resamples.blocks(panel.episode[rows]),
        resamples=resamples,
    )
    return [_measure_policy(sample, policy, str(load or ALL)) for policy in panel.policies]


def _measure_policy(sample: _Sample, policy: str, load: str) -> PolicyMetrics:
    x = sample.hours(policy)
    interruption, overlap = np.maximum(x, 0), np.maximum(-x, 0)
    distance = sample.mean(abs(x))
    return PolicyMetrics(
        policy=policy,
        load=load,
        pairs=len(x),
        interruption_mean=sample.estimate(sample.mean(interruption)),
        interruption_median=sample.quantile(interruption, 0.5),
        interruption_p90=sample.quantile(interruption, 0.9),
        overlap_mean=sample.estimate(sample.mean(overlap)),
        distance_mean=sample.estimate(distance),
        uninterrupted_share=sample.share(x <= ZERO_WITHIN / 3_600),
        close_share=sample.share(abs(x) <= CLOSE_WITHIN / 3_600),
        costs=tuple(
            Cost(weights.overlap, sample.estimate(sample.mean(_costs(sample.x[policy], weights))))
            for weights in PRICES
        ),
        reduction=_reduction(sample, policy),
        regret=_regret(sample, distance),
        gap_closed=_gap_closed(sample, distance),
    )


def _costs(x: Ints, weights: Weights) -> Floats:
    """Cost of each handover, in hours of interruption."""
    outcomes = (Outcome(predecessor_end=0, successor_start=gap) for gap in x.tolist())
    return np.array([-objective(outcome, weights) / 3_600 for outcome in outcomes])


def _reduction(sample: _Sample, policy: str) -> IntervalEstimate | None:
    """Paired: each resample compares the two policies on the same episodes."""
    if REACTIVE not in sample.x:
        return None
    own, base = (sample.mean(np.maximum(sample.hours(name), 0)) for name in (policy, REACTIVE))
    return sample.estimate(1 - ratio(own, base))


def _regret(sample: _Sample, distance: Floats) -> IntervalEstimate | None:
    if ORACLE not in sample.x:
        return None
    return sample.estimate(distance - sample.mean(abs(sample.hours(ORACLE))))


def _gap_closed(sample: _Sample, distance: Floats) -> IntervalEstimate | None:
    if ORACLE not in sample.x or REACTIVE not in sample.x:
        return None
    floor, ceiling = (sample.mean(abs(sample.hours(name))) for name in (ORACLE, REACTIVE))
    return sample.estimate(ratio(ceiling - distance, ceiling - floor))


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Quotient, ``nan`` where the denominator is not positive (nothing to reduce, no gap to close)."""
    positive = denominator > 0
    return np.where(positive, numerator / np.where(positive, denominator, 1), np.nan)


def for_json(value: object) -> object:
    """The same nest of dicts and lists with ``None`` for numbers that JSON cannot say."""
    if isinstance(value, dict):
        return {key: for_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [for_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""A table of speeds from what was measured, by regression.

Measurements of tasks that ran are sums of work and time, alone and next to others, so that links add up.

The logarithm of a rate is modelled as a sum of three parts: the model on a number of devices, the effect of the
placement, and the factor of each neighbour. A table of speeds is used in the same way, so nothing is lost that
it could represent. The sum is fitted by weighted ridge regression (Hoerl and Kennard, Technometrics 12, 1970):
least squares in which each factor is drawn towards the earlier estimate (1, or a given table), as if that had
been measured for ``TRUSTED`` seconds. A factor without measurements stays unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.speeds import ANY, Measurements, fewest_nodes

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from mirage.allocation.ddl.speeds import MeasuredRun
    from mirage.domain.pool import Pool

Scene = tuple["MeasuredRun", tuple["MeasuredRun", ...]]
"""A run and its neighbours: the tasks with devices on one of its nodes, sorted."""


@dataclass(frozen=True, slots=True)
class SceneTotals:
    """Sum of the measurements of one scene."""

    seconds: float = 0.0
    done: float = 0.0
    """Units of work: any unit, equal for all tasks of a model on the same number of devices."""

    @property
    def rate(self) -> float:
        """Work over time, so that long intervals weigh more than short ones."""
        return self.done / self.seconds


@dataclass(slots=True)
class Evidence:
    """Tallies by scene; the order of additions does not matter."""

    tallies: dict[Scene, SceneTotals] = field(default_factory=dict)

    def add(self, run: MeasuredRun, beside: Sequence[MeasuredRun], seconds: float, done: float) -> None:
        """Add the work of ``run`` next to these. Without time or work nothing is added."""
        if seconds <= 0 or done <= 0:
            return
        scene = run, tuple(sorted(beside, key=_order))
        had = self.tallies.get(scene, SceneTotals())
        self.tallies[scene] = SceneTotals(had.seconds + seconds, had.done + done)

    @property
    def runs(self) -> tuple[MeasuredRun, ...]:
        """Runs with a measurement, in a fixed order."""
        return tuple(sorted({run for run, _ in self.tallies}, key=_order))

    @property
    def met(self) -> tuple[MeasuredRun, ...]:
        """These runs and their neighbours."""
        return tuple(sorted({each for run, beside in self.tallies for each in (run, *beside)}, key=_order))

    @property
    def total(self) -> float:
        """Sum of all measured seconds."""
        return sum(tally.seconds for tally in self.tallies.values())

    def seconds(self, run: MeasuredRun) -> float:
        """Seconds of measurements of a run."""
        return sum(tally.seconds for (of, _), tally in self.tallies.items() if of == run)

    def __iter__(self) -> Iterator[tuple[MeasuredRun, tuple[MeasuredRun, ...], SceneTotals]]:
        return ((run, beside, tally) for (run, beside), tally in sorted(self.tallies.items(), key=_scene_order))


def _order(run: MeasuredRun) -> tuple[str, int, int, str]:
    return run.model, run.devices, run.spread, run.kind


def _scene_order(item: tuple[Scene, SceneTotals]) -> tuple[object, ...]:
    (run, beside), _ = item
    return _order(run), tuple(map(_order, beside))


TRUSTED = 600.0
"""Seconds of weight of the earlier estimate: a measured factor counts half after twice as long alone, and as long
with another."""

NOTHING = Measurements("nothing", (), np.zeros(0), np.ones((0, 0)))


def estimate(evidence: Evidence, prior: Measurements = NOTHING) -> Measurements:
    """The estimated table of speeds: measurements over an earlier estimate.

    Throughputs of models without a row in ``prior`` are in their tasks' units per second; others in the prior's.
    """
    runs, kind = evidence.met, _main_kind(evidence, prior)
    believed = _Belief(prior, runs)
    found = _Regression(evidence, believed, kind)
    kept = [
        row
        for row, run in enumerate(prior.runs)
        if run not in runs and (run.model, run.devices) not in believed.dropped
    ]
    own = np.array([np.exp(found.level(run)) for run in runs])
    ratio = believed.ratios([*(believed.row.get(run, -1) for run in runs), *kept])
    for (run, other), change in found.pairs.items():
        ratio[runs.index(run), runs.index(other)] *= np.exp(change)
    return Measurements(
        source=prior.source if prior.runs else "what was measured",
        runs=(*runs, *(prior.runs[row] for row in kept)),
        throughput=np.concatenate([own, prior.throughput[kept]]),
        ratio=ratio,
        reference_kind=kind,
    )


def spread_counted(measured: Measurements, pool: Pool) -> Measurements:
    """The same with spreads as numbers of nodes of this pool, as measured on it."""
    if not measured.beyond_fewest:
        return measured
    runs = tuple(replace(run, spread=run.spread + fewest_nodes(run.devices, pool) - 1) for run in measured.runs)
    return replace(measured, runs=runs, beyond_fewest=False)


def _main_kind(evidence: Evidence, prior: Measurements) -> str:
    """The reference kind: the prior's, or the one measured for the longest time."""
    if prior.runs:
        return prior.reference_kind
    kinds = sorted({run.kind for run in evidence.runs})
    time = {kind: sum(evidence.seconds(run) for run in evidence.runs if run.kind == kind) for kind in kinds}
    return max(kinds, key=time.__getitem__, default=ANY)


class _Belief:
    """The estimates of the measured runs."""

    def __init__(self, prior: Measurements, runs: tuple[MeasuredRun, ...]) -> None:
        known = {run: prior.fit(run.model, run.devices, run.spread, run.kind) for run in runs}
        # Units are equal for a model on a number of devices: all of its runs are estimated, or none.
        self.dropped = {(run.model, run.devices) for run in runs if known[run] is None}
        self.row = {
            run: row
            for run, row in known.items()
            if row is not None and (run.model, run.devices) not in self.dropped
        }
        self._prior = prior

    def level(self, run: MeasuredRun) -> float:
        """Logarithm of its throughput; 0 without an estimate."""
        return float(np.log(self._prior.throughput[self.row[run]])) if run in self.row else 0.0

    def beside(self, run: MeasuredRun, others: Iterable[MeasuredRun]) -> float:
        """Logarithm of the factor of these neighbours."""
        ratio = self.ratios([self.row.get(each, -1) for each in (run, *others)])
        return float(np.log(ratio[0, 1:]).sum())

    def ratios(self, rows: list[int]) -> NDArray[np.float64]:
        """Factor of each next to each other one, by their rows in the prior; -1: no estimate."""
        ratio = np.ones((len(rows), len(rows)))
        known = np.flatnonzero(np.array(rows, dtype=np.int64) >= 0)
        at = np.array(rows, dtype=np.int64)[known]
        ratio[np.ix_(known, known)] = self._prior.ratio[np.ix_(at, at)]
        return ratio


class _Regression:
    """Differences between measurement and estimate, part by part."""

    def __init__(self, evidence: Evidence, believed: _Belief, kind: str) -> None:
        self._believed = believed
        levels = sorted({(run.model, run.devices) for run in evidence.runs})
        reference = _references(evidence.runs, kind)
        placed = [run for run in evidence.runs if run not in reference]
        pairs = list(dict.fromkeys((run, other) for run, beside, _ in evidence for other in beside))
        columns: dict[Hashable, int] = {name: i for i, name in enumerate([*levels, *placed, *pairs])}
        scenes = list(evidence)
        design = np.zeros((len(scenes), len(columns)))
        seen, weight = np.zeros(len(scenes)), np.zeros(len(scenes))
        for i, (run, beside, tally) in enumerate(scenes):
            terms = [
                (run.model, run.devices),
                *([run] if run in placed else []),
                *((run, each) for each in beside),
            ]
            np.add.at(design[i], [columns[term] for term in terms], 1.0)
            seen[i] = np.log(tally.rate) - believed.level(run) - believed.beside(run, beside)
            weight[i] = tally.seconds / TRUSTED
        drawn = np.arange(len(columns)) >= len(levels)  # the level of a model has no earlier estimate
        found = _solve(design, seen, weight, drawn)
        self._levels = {name: found[columns[name]] for name in levels}
        self._placed = {run: found[columns[run]] for run in placed}
        self.pairs: dict[tuple[MeasuredRun, MeasuredRun], float] = {pair: found[columns[pair]] for pair in pairs}
        """Correction of the logarithm of the first run's factor next to the second."""

    def level(self, run: MeasuredRun) -> float:
        """Logarithm of a run's throughput alone."""
        units = 0.0 if run in self._believed.row else self._levels.get((run.model, run.devices), 0.0)
        return float(self._believed.level(run) + units + self._placed.get(run, 0.0))


def _references(runs: tuple[MeasuredRun, ...], kind: str) -> set[MeasuredRun]:
    """The reference run of each model and size, as ``Measurements.reference`` chooses it."""
    chosen: dict[tuple[str, int], MeasuredRun] = {}
    for run in sorted(runs, key=lambda run: (run.kind != kind, run.spread)):
        chosen.setdefault((run.model, run.devices), run)
    return set(chosen.values())


def _solve(
    design: NDArray[np.float64], seen: NDArray[np.float64], weight: NDArray[np.float64], drawn: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The ridge estimate; ``drawn``: columns that are drawn towards 0."""
    moment = design.T @ (weight[:, None] * design) + np.diag(drawn.astype(np.float64))
    return np.asarray(np.linalg.solve(moment, design.T @ (weight * seen)))

"""How shadow predictors would have done on the handovers that a daemon's database has.

The forecast of a shadow at the real submission is compared with the link's real start. The time of the shadow's
own submission is known up to that point: the first time that it decided to submit. A shadow without such a
decision is taken to submit when the wait that it last predicted is as long as the rest of the predecessor. The
real start after such a submission is unknown. Its estimate is the median wait of the jobs of the same class of
partition, size and limit that were submitted nearest to it. The active predictor is judged by the same
estimate, so that both share its errors. By what was measured a trained model may have an objection against its
use.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.artifact import MANIFEST
from mirage.domain.decision import WaitForecast
from mirage.domain.journal import EntryKind
from mirage.domain.objective import Outcome, objective
from mirage.domain.quantileloss import pinball
from mirage.features.waitclass import LIMIT_BOUNDS, NODE_BOUNDS
from mirage.predictors.model_manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.decision import RecentWaits
    from mirage.domain.job import Seconds
    from mirage.domain.journal import Entry
    from mirage.domain.objective import Weights
    from mirage.predictors.model_manifest import ModelManifest
    from mirage.store.journal import HandoverRecord
    from mirage.store.opening import Store

Int64 = NDArray[np.int64]

NEAREST = 9
"""Waits whose median is the estimate."""
HOUR = 3_600
_SAME_CYCLE: Seconds = 600
"""A decision may have waited for a permit, and its cycle for the cluster."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One handover that is complete, with what was predicted before its link was submitted."""

    partition: str
    nodes: int
    limit: Seconds
    submitted: Seconds
    outcome: Outcome
    entries: tuple[Entry, ...]
    """Decisions with predictions, also in shadow, oldest first."""


@dataclass(frozen=True, slots=True)
class Waited:
    """Waits of jobs of one class, by submission."""

    submit: Int64
    wait: Int64

    @classmethod
    def like(cls, waits: RecentWaits, nodes: int, limit: Seconds) -> Waited:
        """Waits of the jobs of the same class of size and limit."""
        same = _class(waits.nodes, NODE_BOUNDS) == _class(np.array(nodes), NODE_BOUNDS)
        same &= _class(waits.limit, LIMIT_BOUNDS) == _class(np.array(limit), LIMIT_BOUNDS)
        submit = (waits.start - waits.wait)[same]
        order = np.argsort(submit, kind="stable")
        return cls(submit[order], waits.wait[same][order])

    def near(self, instant: float) -> float:
        """The estimated wait of a job submitted then; ``nan`` where that or any of the class is not known."""
        if not len(self.submit) or math.isnan(instant):
            return math.nan
        nearest = np.argsort(np.abs(self.submit - instant), kind="stable")[:NEAREST]
        return float(np.median(self.wait[nearest]))


def _class(values: Int64, bounds: tuple[int, ...]) -> Int64:
    return np.searchsorted(bounds, values, side="left")


@dataclass(frozen=True, slots=True)
class Judged:
    """One predictor at one handover; ``None`` where it is unknown."""

    predictor: str
    in_charge: bool
    forecast: WaitForecast | None
    """Forecast at the link's real submission."""
    start: Seconds
    """When that link really started."""
    would_be: Outcome | None
    """By the estimate, also for the active predictor."""


def judge(watched: Watched, waits: RecentWaits) -> tuple[Judged, ...]:
    """Every predictor that was asked before the submission; ``waits`` are those of the handover's partition."""
    alike = Waited.like(waits, watched.nodes, watched.limit)
    charge = {entry.predictor for entry in watched.entries if entry.kind is EntryKind.DECISION}
    names = dict.fromkeys(entry.predictor for entry in watched.entries)
    return tuple(_judged(name, name in charge, watched, alike) for name in names)


def _judged(name: str, in_charge: bool, watched: Watched, alike: Waited) -> Judged:
    said = [entry for entry in watched.entries if entry.predictor == name]
    last = said[-1]
    present = watched.submitted - last.time <= _SAME_CYCLE
    instant = float(watched.submitted) if in_charge else _own_submission(said, watched)
    wait = alike.near(instant)
    end = watched.outcome.predecessor_end
    return Judged(
        predictor=name,
        in_charge=in_charge,
        forecast=_forecast(last) if present else None,
        start=watched.outcome.successor_start,
        would_be=None if math.isnan(wait) else Outcome(end, round(instant + wait)),
    )


def _own_submission(said: Sequence[Entry], watched: Watched) -> float:
    """When the predictor would have submitted; ``nan`` where that is unknown."""
    for entry in said:
        if entry.text.startswith("submit"):
            return float(entry.time)
    foreseen = _forecast(said[-1])
    if foreseen is None:
        return math.nan
    wait = max(foreseen.at(0.5) - said[-1].time, 0.0)
    return max(watched.outcome.predecessor_end - wait, float(watched.submitted))


def _forecast(entry: Entry) -> WaitForecast | None:
    prediction = entry.prediction
    return prediction if isinstance(prediction, WaitForecast) else getattr(prediction, "forecast", None)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Real starts against what was promised at one level."""

    level: float
    share: float
    """Of real starts no later than predicted at the level; as much as the level is right."""
    forecasts: int
    """That gave this level."""


@dataclass(frozen=True, slots=True)
class ShadowScore:
    """A predictor over all handovers; hours, ``nan`` where nothing is known."""

    predictor: str
    in_charge: bool
    """Of at least one of the handovers."""
    forecasts: int
    error: float
    """Median of real start less predicted median."""
    absolute_error: float
    pinball: float
    """Mean over levels and handovers (Koenker & Bassett, Econometrica 46, 1978); a point has its median alone."""
    coverage: float
    """Share of real starts within P10 to P90, of forecasts that give both."""
    handovers: int
    """Handovers with an estimate of what this predictor would have done."""
    interruption: float
    overlap: float
    cost: float
    """Estimated, in weighted hours a handover."""
    gain: float
    """By how much it is less than that of the active predictor, on the same handovers."""
    gain_error: float
    """Standard error of the gain."""
    calibration: tuple[Calibrated, ...] = ()
    """At every level that a forecast gave, ascending."""
    partition: str = ""
    """Of whose handovers; empty: of all, or of those of which it is not known."""


def compared(judged: Iterable[tuple[Judged, ...]], weights: Weights) -> tuple[ShadowScore, ...]:
    """All predictors, active ones first, then by gain."""
    rounds = list(judged)
    names = dict.fromkeys(one.predictor for each in rounds for one in each)
    found = [_measured(name, rounds, weights) for name in names]
    return tuple(
        sorted(found, key=lambda one: (not one.in_charge, math.inf if math.isnan(one.gain) else -one.gain))
    )


def _measured(name: str, rounds: Sequence[tuple[Judged, ...]], weights: Weights) -> ShadowScore:
    own = [one for each in rounds for one in each if one.predictor == name]
    foreseen = [(one.forecast, one.start) for one in own if one.forecast is not None]
    errors = [(start - forecast.at(0.5)) / HOUR for forecast, start in foreseen]
    wide = [pair for pair in foreseen if pair[0].levels[0] <= 0.1 and pair[0].levels[-1] >= 0.9]
    outcomes = [one.would_be for one in own if one.would_be is not None]
    gains = [gain for each in rounds if (gain := _gain(name, each, weights)) is not None]
    return ShadowScore(
        predictor=name,
        in_charge=any(one.in_charge for one in own),
        forecasts=len(foreseen),
        error=median(errors) if errors else math.nan,
        absolute_error=_mean([abs(error) for error in errors]),
        pinball=_mean([_pinball(forecast, start) for forecast, start in foreseen]),
        coverage=_mean([float(f.at(0.1) <= start <= f.at(0.9)) for f, start in wide]),
        handovers=len(outcomes),
        interruption=_mean([outcome.interruption / HOUR for outcome in outcomes]),
        overlap=_mean([outcome.overlap / HOUR for outcome in outcomes]),
        cost=_mean([-objective(outcome, weights) / HOUR for outcome in outcomes]),
        gain=_mean(gains),
        gain_error=stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan,
        calibration=_calibration(foreseen),
    )


def _calibration(foreseen: Iterable[tuple[WaitForecast, Seconds]]) -> tuple[Calibrated, ...]:
    kept: dict[float, list[bool]] = {}
    for forecast, start in foreseen:
        for level, promised in zip(forecast.levels, forecast.starts, strict=True):
            kept.setdefault(level, []).append(start <= promised)
    return tuple(Calibrated(level, fmean(kept[level]), len(kept[level])) for level in sorted(kept))


def _gain(name: str, judged: tuple[Judged, ...], weights: Weights) -> float | None:
    """In one handover; ``None`` where there is nothing to compare."""
    own = next((one.would_be for one in judged if one.predictor == name), None)
    charge = next((one.would_be for one in judged if one.in_charge), None)
    if own is None or charge is None:
        return None
    return (objective(own, weights) - objective(charge, weights)) / HOUR


def _pinball(forecast: WaitForecast, start: Seconds) -> float:
    return fmean(pinball(start, forecast.starts, forecast.levels)) / HOUR


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan


FEWEST = 5
"""Handovers below which a comparison says nothing."""


def objection_to(manifest: ModelManifest, measured: Iterable[ShadowScore]) -> str:
    """Why this model had better not be put in use; empty: nothing speaks against it."""
    for each in measured:
        name, _, folder = each.predictor.partition(":")
        if name != manifest.plugin or not (Path(folder) / MANIFEST).is_file():
            continue
        if read_manifest(Path(folder)) == manifest and each.handovers >= FEWEST and each.gain < 0:
            where = f" in partition {each.partition}" if each.partition else ""
            more = f"{-each.gain:.2f} h more per handover{where} than the active predictor"
            return f"in shadow it would have cost {more} ({each.handovers} handovers, +-{each.gain_error:.2f} h)"
    return ""


_KINDS = (EntryKind.DECISION, EntryKind.SHADOW)
_PAGE = 1_000
_WAITS = 200_000
"""Waits looked at, the latest."""
_EVERY = sys.maxsize
SPAN: Seconds = 30 * 86_400
"""Maximum age of the handovers by which a daemon compares predictors."""


@dataclass(frozen=True, slots=True)
class JudgedHandover:
    """Score of each predictor at one handover, and the class of its links."""

    partition: str
    """Partition in which its successor ran; empty: not known."""
    nodes: int
    limit: Seconds
    judged: tuple[Judged, ...]
    start: Seconds = 0
    """Of the successor."""


def shadow_results(store: Store, weights: Weights, since: Seconds) -> tuple[ShadowScore, ...]:
    """Every predictor over each partition's handovers since then. Raises ``StoreUnavailable``."""
    return compared_by_partition(tuple(judged_handovers(store, since)), weights)


def compared_by_partition(handovers: Sequence[JudgedHandover], weights: Weights) -> tuple[ShadowScore, ...]:
    """All predictors, partition by partition: what is good in an idle one may be bad in a contended one."""
    found: list[ShadowScore] = []
    for partition in sorted({each.partition for each in handovers}):
        measured = compared((each.judged for each in handovers if each.partition == partition), weights)
        found += (replace(each, partition=partition) for each in measured)
    return tuple(found)


def judged_handovers(
    store: Store, since: Seconds, latest: int = _EVERY, entries: int = _EVERY
) -> Iterator[JudgedHandover]:
    """The handovers since then of which something was predicted. Raises ``StoreUnavailable``.

    Only the ``latest`` of them, each with at most its last ``entries`` journal entries. These include the
    forecasts at the submission, but may lack the first time that a shadow decided to submit.
    """
    records = {record.chain.chain_id: record for record in store.chains.load()}
    waits: dict[str, RecentWaits] = {}
    for handover in store.outcomes.read(since=since)[-latest:]:
        record = records.get(handover.chain)
        watched = _watched(store, record, handover, entries) if record is not None else None
        if watched is not None:
            where = watched.partition
            if where not in waits:
                waits[where] = store.waits.recent_waits(_WAITS, where)
            judged, start = judge(watched, waits[where]), handover.outcome.successor_start
            yield JudgedHandover(where, watched.nodes, watched.limit, judged, start)


def _watched(store: Store, record: ChainRecord, handover: HandoverRecord, most: int) -> Watched | None:
    """``None`` where no predictor was asked, or its answers are deleted."""
    link = record.links[handover.successor - 1]
    found = islice(_entries(store, handover.chain, link.index, min(most, _PAGE)), most)
    said = [entry for entry in found if entry.prediction is not None]
    entries = tuple(reversed([entry for entry in said if entry.time <= max(link.submit, link.planned)]))
    if not any(entry.kind is EntryKind.DECISION for entry in entries):
        return None
    request = record.chain.request
    partition = store.waits.partition_of(link.job_id) or request.partition
    return Watched(
        partition, request.nodes, request.limit, max(link.submit, link.planned), handover.outcome, entries
    )


def _entries(store: Store, chain: ChainId, link: int, page_size: int) -> Iterator[Entry]:
    """Yield the prediction entries of a link, newest first, page by page."""
    before: int | None = None
    while page := store.journal.read(chain, _KINDS, before, page_size, link):
        yield from (line.entry for line in page)
        before = page[-1].cursor

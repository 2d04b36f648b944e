"""Figures of an evaluation for each method and setting: means over handovers and seeds, with their spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.decision import WaitForecast
from mirage.domain.objective import ZERO_WITHIN
from mirage.domain.quantileloss import pinball
from mirage.replay.intervals import IntervalEstimate, Resampling, resample_episodes, weighted_mean
from mirage.replay.metrics import CLOSE_WITHIN, ratio
from mirage.replay.results import ORACLE, REACTIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.training.evaluation.plan import EvaluationSetting, Method
    from mirage.training.evaluation.playing import PlayedEpisode, ScoredForecast
    from mirage.training.evaluation.schedule import Found

Floats = NDArray[np.float64]

HOUR = 3_600
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Levels at which forecasts are scored; a forecast of one time counts for every level."""

ENDS = (0.1, 0.9)
"""Levels between which 80 % of the waits should lie."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds with its interval over handovers, and the smallest and largest seed."""

    mean: IntervalEstimate
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Accuracy of forecasts at the probes."""

    asked: int
    answered: int
    """Number of valid forecasts; the other requests were rejected or gave no forecast."""
    coverage: float | None
    """Share of waits within P10 and P90; ``None`` for forecasts of one time."""
    pinball: float
    """Mean quantile loss over ``LEVELS`` in hours (Koenker & Bassett, Econometrica 46, 1978)."""
    error_median: float
    """Median of |P50 - wait|, hours."""


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One method on one setting. Times in hours, shares within 0 and 1."""

    setting: EvaluationSetting
    method: Method
    seeds: int
    hand_overs: int
    distance: Spread
    """Mean |x|, x = start of the successor less the end of the predecessor."""
    interruption: Spread
    overlap: Spread
    uninterrupted: Spread
    """Share with an interruption of at most ``ZERO_WITHIN``."""
    close: Spread
    """Share with |x| of at most ``CLOSE_WITHIN``."""
    less_interrupted: Spread | None
    """1 - interruption / that of reactive submission; ``None`` without that."""
    gap_closed: Spread | None
    """Share of the way in mean |x| from reactive submission to the oracle; ``None`` without either."""
    regret: Spread | None
    """Mean |x| above the oracle's; ``None`` without an oracle."""
    calibration: Calibration | None
    """``None`` for methods that predict no waits."""
    decision_ms: float
    """Mean seconds of a prediction."""
    training_s: float | None
    """Mean seconds of a training; ``None`` without a training or without a record of its duration."""
    troubles: int
    """Handovers with an error during their run."""


@dataclass(frozen=True, slots=True)
class Figures:
    """All rows, settings one after the other."""

    rows: tuple[FigureRow, ...]
    left_out: tuple[tuple[EvaluationSetting, int], ...]
    """Episodes omitted because some method has no handover in them, by setting."""
    resampling: Resampling
    block_episodes: int
    """Consecutive episodes drawn together for the intervals."""


def figures_of(found: Sequence[Found], how: Resampling | None = None) -> Figures:
    """The figures of what is finished: methods of a setting on the handovers that all of them have."""
    how = how or Resampling()
    settings = tuple(dict.fromkeys(one.setting for one in found))
    panels = [_Panel([one for one in found if one.setting == setting], how) for setting in settings]
    return Figures(
        rows=tuple(row for panel in panels for row in panel.rows()),
        left_out=tuple((panel.setting, panel.left_out) for panel in panels if panel.left_out),
        resampling=how,
        block_episodes=max((panel.resamples.length for panel in panels), default=1),
    )


class _Panel:
    """One setting: every run on the same handovers."""

    def __init__(self, found: Sequence[Found], how: Resampling) -> None:
        self.setting = found[0].setting
        self._found = found
        outcomes = {one: _outcomes(one.episodes) for one in found}
        numbers = {number for known in outcomes.values() for number in known}
        shared = sorted(number for number in numbers if all(number in known for known in outcomes.values()))
        self.left_out = len({episode.number for one in found for episode in one.episodes}) - len(shared)
        starts = {episode.number: episode.start for episode in found[0].episodes}
        self.resamples = resample_episodes(np.array([starts[n] for n in shared], dtype=np.int64), how)
        self._weights = self.resamples.weights.astype(np.float64)
        self._x: dict[str, Floats] = {}
        for method in self._methods():
            runs = [outcomes[one] for one in found if one.run.method == method]
            self._x[method.label] = np.array([[run[n] / HOUR for n in shared] for run in runs])

    def _methods(self) -> tuple[Method, ...]:
        return tuple(dict.fromkeys(one.run.method for one in self._found))

    def rows(self) -> list[FigureRow]:
        return [self._row(method) for method in self._methods()]

    def _row(self, method: Method) -> FigureRow:
        x, runs = self._x[method.label], [one for one in self._found if one.run.method == method]
        episodes = [episode for one in runs for episode in one.episodes]
        asked = sum(episode.asked for episode in episodes)
        trained = [
            one.learned.seconds for one in runs if one.learned is not None and one.learned.seconds is not None
        ]
        return FigureRow(
            setting=self.setting,
            method=method,
            seeds=method.seeds,
            hand_overs=x.shape[1],
            distance=self._spread(abs(x)),
            interruption=self._spread(np.maximum(x, 0)),
            overlap=self._spread(np.maximum(-x, 0)),
            uninterrupted=self._spread(x <= ZERO_WITHIN / HOUR),
            close=self._spread(abs(x) <= CLOSE_WITHIN / HOUR),
            less_interrupted=self._less_interrupted(x),
            gap_closed=self._gap_closed(x),
            regret=self._regret(x),
            calibration=calibration_of([forecast for episode in episodes for forecast in episode.forecasts]),
            decision_ms=1_000 * sum(episode.seconds for episode in episodes) / asked if asked else 0.0,
            training_s=float(np.mean(trained)) if trained else None,
            troubles=sum(bool(episode.troubles) for episode in episodes),
        )

    def _spread(
        self, values: Floats | NDArray[np.bool_], tell: Callable[[Floats], Floats] = lambda mean: mean
    ) -> Spread:
        """A statistic computed by ``tell`` from weighted means of values, shape (seeds, handovers)."""
        seeds = [
            float(tell(weighted_mean(one, self._weights[:1]))[0]) for one in np.asarray(values, dtype=np.float64)
        ]
        together = tell(weighted_mean(np.mean(values, axis=0, dtype=np.float64), self._weights))
        return Spread(self._estimate(together), min(seeds), max(seeds))

    def _estimate(self, replicates: Floats) -> IntervalEstimate:
        count = self.resamples.weights.shape[1]
        return (
            self.resamples.estimate(replicates, count / self.resamples.length)
            if count
            else IntervalEstimate(float("nan"))
        )

    def _mean(self, values: Floats, rows: int) -> Floats:
        return weighted_mean(values, self._weights[:rows])

    def _less_interrupted(self, x: Floats) -> Spread | None:
        if REACTIVE not in self._x:
            return None
        base = np.maximum(self._x[REACTIVE][0], 0)
        return self._spread(np.maximum(x, 0), lambda mean: 1 - ratio(mean, self._mean(base, len(mean))))

    def _gap_closed(self, x: Floats) -> Spread | None:
        if REACTIVE not in self._x or ORACLE not in self._x:
            return None
        ceiling, floor = abs(self._x[REACTIVE][0]), abs(self._x[ORACLE][0])

        def closed(mean: Floats) -> Floats:
            top = self._mean(ceiling, len(mean))
            return ratio(top - mean, top - self._mean(floor, len(mean)))

        return self._spread(abs(x), closed)

    def _regret(self, x: Floats) -> Spread | None:
        if ORACLE not in self._x:
            return None
        return self._spread(abs(x) - abs(self._x[ORACLE][0]))


def _outcomes(episodes: Sequence[PlayedEpisode]) -> dict[int, int]:
    """x in seconds by the number of the episode."""
    return {
        one.number: one.successor_start - one.predecessor_end
        for one in episodes
        if one.successor_start is not None and one.predecessor_end is not None
    }


def calibration_of(forecasts: Sequence[ScoredForecast]) -> Calibration | None:
    """Scores of all forecasts; ``None`` without any forecast."""
    answered = [forecast for forecast in forecasts if forecast.levels]
    if not answered:
        return None
    wait = np.array([forecast.wait for forecast in answered]) / HOUR
    spread = [forecast for forecast in answered if len(forecast.levels) > 1]
    foreseen = np.array([[_at(forecast, level) for level in LEVELS] for forecast in answered]) / HOUR
    low, high = (foreseen[:, LEVELS.index(end)] for end in ENDS)
    return Calibration(
        asked=len(forecasts),
        answered=len(answered),
        coverage=float(np.mean((wait >= low) & (wait <= high))) if len(spread) == len(answered) else None,
        pinball=float(pinball(wait, foreseen, LEVELS).mean()),
        error_median=float(np.median(abs(foreseen[:, LEVELS.index(0.5)] - wait))),
    )


def _at(forecast: ScoredForecast, level: float) -> float:
    return WaitForecast(forecast.levels, forecast.waits).at(level)

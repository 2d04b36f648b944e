"""How long jobs run: what jobs like them ran, the more alike and the more recent the more it counts.

For each job a mixture of the run times of its series (at its limit), of its user, and of all jobs of about its
limit. A level with evidence W takes the share W / (W + prior) of what the levels before it left over: the
predictive distribution of a hierarchical Dirichlet process (Teh et al., JASA 101, 2006) with fixed tables. What
has run for some time is conditioned on that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.predictors.lookahead.past import Likeness, Past

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Level:
    """How runs at one level of likeness count."""

    prior: float
    """As many runs as this are worth as much as all the less alike ones together."""
    memory: float
    """Seconds after which a run counts 1/e."""
    fading: float
    """What a run counts for each newer one at the same level."""


SERIES = Level(prior=3.0, memory=4 * DAY, fading=0.8)
USER = Level(prior=3.0, memory=30 * DAY, fading=0.9)
CLASS = Level(prior=1.0, memory=14 * DAY, fading=1.0)
"""Chosen by the continuous ranked probability score of the remaining run times on LS6, December and January."""

SAME_CLASS = 2.0
"""Limits up to so many times longer or shorter make a class."""


@dataclass(frozen=True, slots=True)
class _Mixture:
    """A distribution of run times: ascending seconds, and the probability up to and with each."""

    seconds: Int64
    upto: Floats


class RunTimes:
    """Draws run times."""

    def __init__(self, past: Past) -> None:
        rows = past.ended
        table = past.table
        self._now = past.now
        self._end, self._limit = table.end[rows], table.limit[rows]
        self._ran, self._hit = table.end[rows] - table.start[rows], past.hit_limit[rows]
        self._series, self._user = past.like.series[rows], past.like.user[rows]
        self._log_limit = np.log(np.maximum(self._limit, 1))
        self._kept: dict[tuple[int, int, int], _Mixture] = {}
        self._classes: dict[int, tuple[Int64, Floats]] = {}

    def draw(self, like: Likeness, elapsed: Int64, uniforms: Floats) -> Int64:
        """Seconds each job runs in all, more than ``elapsed`` and at most its limit; shape of ``uniforms``."""
        found = np.empty(uniforms.shape, dtype=np.int64)
        for job in range(len(like)):
            limit = int(like.limit[job])
            mixture = self._mixture(int(like.series[job]), int(like.user[job]), limit)
            found[:, job] = _conditioned(mixture, int(elapsed[job]), limit, uniforms[:, job])
        return found

    def _mixture(self, series: int, user: int, limit: int) -> _Mixture:
        key = (series, user, limit)
        if key not in self._kept:
            self._kept[key] = self._mixed(*key)
        return self._kept[key]

    def _mixed(self, series: int, user: int, limit: int) -> _Mixture:
        same_user = np.flatnonzero(self._user == user)
        same_series = same_user[(self._series[same_user] == series) & (self._limit[same_user] == limit)]
        levels = [(same_series, *self._weighed(same_series, SERIES)), (same_user, *self._weighed(same_user, USER))]
        levels.append((*self._class(limit), CLASS.prior))
        seconds, weights, left = [np.array([limit], dtype=np.int64)], [np.zeros(1)], 1.0
        for rows, weight, prior in levels:
            evidence = float(weight.sum())
            if evidence <= 0.0:
                continue
            share = left * evidence / (evidence + prior) if rows is not levels[-1][0] else left
            seconds.append(np.where(self._hit[rows], limit, np.minimum(self._ran[rows], limit)))
            weights.append(weight * (share / evidence))
            left -= share
        joined, mass = np.concatenate(seconds), np.concatenate(weights)
        order = np.argsort(joined, kind="stable")
        return _Mixture(joined[order], np.cumsum(mass[order]))

    def _weighed(self, rows: Int64, level: Level) -> tuple[Floats, float]:
        newer = np.arange(len(rows) - 1, -1, -1)
        return np.exp((self._end[rows] - self._now) / level.memory) * level.fading**newer, level.prior

    def _class(self, limit: int) -> tuple[Int64, Floats]:
        """Jobs of about this limit; all jobs where there are none."""
        if limit not in self._classes:
            near = np.abs(self._log_limit - np.log(max(limit, 1))) <= np.log(SAME_CLASS)
            rows = np.flatnonzero(near) if near.any() else np.arange(len(self._ran))
            self._classes[limit] = (rows, self._weighed(rows, CLASS)[0])
        return self._classes[limit]


def _conditioned(mixture: _Mixture, elapsed: int, limit: int, uniforms: Floats) -> Int64:
    """Draw from the part of the distribution beyond ``elapsed``; to the limit where nothing ever ran so long."""
    first = int(np.searchsorted(mixture.seconds, elapsed, side="right"))
    before = float(mixture.upto[first - 1]) if first else 0.0
    beyond = float(mixture.upto[-1]) - before
    if first == len(mixture.seconds) or beyond <= 1e-9:
        return np.full(len(uniforms), limit, dtype=np.int64)
    place = np.searchsorted(mixture.upto, before + uniforms * beyond, side="left")
    return mixture.seconds[np.clip(place, first, len(mixture.seconds) - 1)]

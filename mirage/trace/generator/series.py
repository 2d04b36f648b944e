"""Who submits each batch: it opens a series, returns to an earlier one, or continues a chain by hand."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from mirage.trace.generator.model import draw

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int64
    from mirage.trace.generator.arrivals import BatchPlan
    from mirage.trace.generator.model import Floats, JobClass, WorkloadModel

GOLDEN = 0.6180339887498949
"""Steps of the golden ratio fill the unit interval evenly at any length."""

ADOPTION = 6 * 3600.0
"""A batch that comes up to this long after a chain's next link was due takes the link's time."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Random scores of the batches that decide, before runtimes are drawn, whether they end in a timeout."""

    series_weight: float
    own: Floats
    """The part of the last job's normal score that does not come from its series."""
    span: Floats
    """Seconds from the batch's first to its last submission."""


@dataclass(frozen=True, slots=True)
class SeriesTable:
    """Series as columns, and the series and time of each batch."""

    user: Int64
    name: Int64
    """Number of the name among the user's names."""
    nodes: Int64
    limit: Int64
    score: Floats
    """Standard normal; shared by all its jobs."""
    of_batch: Int64
    time: Floats
    """Submission of each batch; chain links were moved to when they were due."""


class Recency:
    """Keys in the order of their last use, to find the one last used at about a given instant."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._keys: list[int] = []
        self._last: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def touch(self, key: int, now: float) -> None:
        """Note a use; ``now`` is not before any earlier use."""
        before = self._last.get(key)
        if before is not None:
            place = bisect_left(self._times, before)
            while self._keys[place] != key:
                place += 1
            del self._times[place], self._keys[place]
        self._times.append(now)
        self._keys.append(key)
        self._last[key] = now

    def used_at(self, instant: float) -> int:
        """The key whose last use is nearest to ``instant``."""
        after = bisect_right(self._times, instant)
        if after == 0:
            return self._keys[0]
        if after < len(self._times) and self._times[after] - instant < instant - self._times[after - 1]:
            return self._keys[after]
        return self._keys[after - 1]


@dataclass(slots=True)
class _ClassState:
    """What one class remembers."""

    described: JobClass
    edges: Floats
    phase: float
    timeout_score: float
    series: Recency = field(default_factory=Recency)
    users: Recency = field(default_factory=Recency)
    due: list[tuple[float, int]] = field(default_factory=list)
    """Heap of (instant, series) of the chain links that users will submit."""


@dataclass(slots=True)
class _Draws:
    """Uniforms and times drawn for all batches at once."""

    new: list[float]
    user: list[float]
    same_class: list[float]
    same_name: list[float]
    continued: list[float]
    series_return: list[float]
    user_return: list[float]
    end_to_next: list[float]
    """Seconds from submission to the next link's, less the limit."""
    own: list[float]


def assign_series(
    model: WorkloadModel, plan: BatchPlan, scores: Scores, rng: np.random.Generator
) -> SeriesTable:
    """Give every batch of ``plan`` a series, in order of arrival."""
    author = _Author(model, _draws(model, len(plan.time), scores, rng), scores.series_weight, rng)
    times = plan.time.tolist()
    of_batch = [author.next_batch(b, times, c) for b, c in enumerate(plan.job_class.tolist())]
    return author.table(np.array(of_batch, dtype=np.int64), np.array(times))


def _draws(model: WorkloadModel, count: int, scores: Scores, rng: np.random.Generator) -> _Draws:
    """All random numbers of ``count`` batches."""
    hours = [
        draw(quantiles, rng.random(count)) * 3600
        for quantiles in (
            model.habits.series_return,
            model.habits.user_return,
            model.chains.lateness,
            model.chains.wait,
        )
    ]
    uniform = [rng.random(count).tolist() for _ in range(5)]
    return _Draws(
        new=uniform[0],
        user=uniform[1],
        same_class=uniform[2],
        same_name=uniform[3],
        continued=uniform[4],
        series_return=hours[0].tolist(),
        user_return=hours[1].tolist(),
        end_to_next=(scores.span + hours[2] + hours[3]).tolist(),
        own=scores.own.tolist(),
    )


class _Author:
    """Decides batch by batch; the state is what users remember."""

    def __init__(
        self, model: WorkloadModel, draws: _Draws, series_weight: float, rng: np.random.Generator
    ) -> None:
        self._model = model
        self._draws = draws
        self._series_weight = series_weight
        self._rng = rng
        self._classes = [_class_state(c, rng) for c in model.classes]
        self._users = Recency()
        self._names: list[int] = []
        """Names each user has."""
        self._series: list[tuple[int, int, int, int]] = []
        """User, name, nodes and limit of each series."""
        self._scores: list[float] = []

    def next_batch(self, batch: int, times: list[float], job_class: int) -> int:
        """The series of one batch; moves ``times[batch]`` where the batch is a chain's next link."""
        now = times[batch]
        state = self._classes[job_class]
        if self._draws.new[batch] < state.described.new_series or not len(state.series):
            series = self._open(batch, now, state)
        elif state.due and state.due[0][0] <= now:
            due, series = heapq.heappop(state.due)
            if now - due <= ADOPTION:
                times[batch] = due
        else:
            series = state.series.used_at(now - self._draws.series_return[batch])
        self._remember(series, now, state)
        self._continue(batch, series, times[batch], state)
        return series

    def _open(self, batch: int, now: float, state: _ClassState) -> int:
        """A new series with a request of the class, by a new or a known user."""
        user = self._user(batch, now, state)
        name = self._name(batch, user)
        state.phase = (state.phase + GOLDEN) % 1
        shape = state.described.shapes[int(np.searchsorted(state.edges, state.phase, side="right"))]
        self._series.append((user, name, shape.nodes, shape.limit))
        self._scores.append(float(self._rng.standard_normal()))
        return len(self._series) - 1

    def _user(self, batch: int, now: float, state: _ClassState) -> int:
        """Whose the new series is."""
        habits = self._model.habits
        if self._draws.user[batch] < habits.new_user or not self._names:
            self._names.append(0)
            return len(self._names) - 1
        instant = now - self._draws.user_return[batch]
        if len(state.users) and self._draws.same_class[batch] < habits.same_class:
            return state.users.used_at(instant)
        return self._users.used_at(instant)

    def _name(self, batch: int, user: int) -> int:
        """The number of its name: the user's latest, or the next."""
        if self._names[user] == 0 or self._draws.same_name[batch] >= self._model.habits.same_name:
            self._names[user] += 1
        return self._names[user] - 1

    def _remember(self, series: int, now: float, state: _ClassState) -> None:
        user = self._series[series][0]
        state.series.touch(series, now)
        state.users.touch(user, now)
        self._users.touch(user, now)

    def _continue(self, batch: int, series: int, submitted: float, state: _ClassState) -> None:
        """Where the batch ends in a timeout, the user may be going to submit the next link."""
        chains = self._model.chains
        limit = self._series[series][3]
        if limit < chains.min_limit or self._draws.continued[batch] >= chains.continued:
            return
        if self._series_weight * self._scores[series] + self._draws.own[batch] > state.timeout_score:
            due = submitted + limit + self._draws.end_to_next[batch]
            heapq.heappush(state.due, (max(due, submitted), series))

    def table(self, of_batch: Int64, time: Floats) -> SeriesTable:
        """What was decided, as columns."""
        columns = np.array(self._series, dtype=np.int64).reshape(-1, 4).T
        user, name, nodes, limit = columns
        return SeriesTable(user, name, nodes, limit, np.array(self._scores), of_batch, time)


def _class_state(described: JobClass, rng: np.random.Generator) -> _ClassState:
    """A class before its first batch."""
    weights = np.array([s.weight for s in described.shapes])
    edges = np.cumsum(weights)[:-1] / weights.sum()
    share = min(max(1 - described.timeout, 1e-9), 1 - 1e-9)
    return _ClassState(described, edges, float(rng.random()), NormalDist().inv_cdf(share))

"""Who submits each batch: it opens a series, returns to an earlier one, or continues a chain manually."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from mirage.trace.generator.arrivals import GOLDEN, SILVER
from mirage.trace.generator.model import draw

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.jobtable import Int64
    from mirage.trace.generator.arrivals import BatchPlan
    from mirage.trace.generator.model import Floats, JobClass, WorkloadModel

NEIGHBOURS = 40
"""Keys tried before none is taken to be free."""


class Recency:
    """Keys in the order of their last use, to find the one last used at about a given time."""

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

    def used_at(self, instant: float, free: Callable[[int], bool]) -> int | None:
        """The key last used nearest to ``instant`` of those that are ``free``; ``None`` if none near is."""
        high = bisect_right(self._times, instant)
        low = high - 1
        for _ in range(NEIGHBOURS):
            newer = self._times[high] - instant if high < len(self._times) else math.inf
            older = instant - self._times[low] if low >= 0 else math.inf
            if newer == older:
                return None
            place = high if newer < older else low
            if free(self._keys[place]):
                return self._keys[place]
            high, low = (high + 1, low) if newer < older else (high, low - 1)
        return None


ADOPTION = 6 * 3600.0
"""A batch that comes up to this long after a chain's next link was due takes the link's time."""
SCORE_END = 4.0
SCORE_STEP = 0.05


@dataclass(frozen=True, slots=True)
class NormalScores:
    """Normal scores of the jobs, by which users are taken to know how long their work will run."""

    series_weight: float
    own: Floats
    """The part of each job's score that does not come from its series, batch after batch."""
    last: Int64
    """Row of each batch's last job in ``own``."""
    span: Floats
    """Seconds from each batch's first to its last submission."""


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


@dataclass(slots=True)
class _ClassState:
    """What one class remembers."""

    described: JobClass
    edges: Floats
    phase: float
    """Of the next series' request."""
    score_phase: float
    timeout_score: float
    fraction: list[float]
    """Share of the limit that a job runs, by its score from -``SCORE_END`` in steps of ``SCORE_STEP``."""
    series: Recency = field(default_factory=Recency)
    users: Recency = field(default_factory=Recency)
    due: list[tuple[float, int]] = field(default_factory=list)
    """Heap of (time, series) of the chain links that users will submit."""

    def next_score(self) -> float:
        """A normal score for a new series; evenly spread over the class's series."""
        self.score_phase = (self.score_phase + SILVER) % 1
        return NormalDist().inv_cdf(min(max(self.score_phase, 1e-9), 1 - 1e-9))


@dataclass(slots=True)
class _Draws:
    """Random numbers and times for all batches."""

    new: list[float]
    user: list[float]
    same_class: list[float]
    same_name: list[float]
    continued: list[float]
    alone: list[float]
    series_return: list[float]
    user_return: list[float]
    class_return: list[float]
    wait: list[float]
    """Seconds."""
    end_to_next: list[float]
    """Seconds from submission to the next link's, less the limit."""


def assign_series(
    model: WorkloadModel, plan: BatchPlan, scores: NormalScores, rng: np.random.Generator
) -> SeriesTable:
    """Give every batch of ``plan`` a series, in order of arrival."""
    author = _Author(model, plan, scores, _draws(model, plan, scores, rng), rng)
    author.write()
    return author.table()


def _draws(model: WorkloadModel, plan: BatchPlan, scores: NormalScores, rng: np.random.Generator) -> _Draws:
    """All random numbers of the batches."""
    count = len(plan.time)
    uniform = [rng.random(count).tolist() for _ in range(6)]
    seconds = [
        draw(quantiles, rng.random(count)) * 3600
        for quantiles in (
            model.habits.user_return,
            model.habits.class_return,
            model.chains.lateness,
            model.chains.wait,
        )
    ]
    luck = rng.random(count)
    series_return = np.zeros(count)
    for c, described in enumerate(model.classes):
        rows = plan.job_class == c
        series_return[rows] = draw(described.series_return, luck[rows]) * 3600
    return _Draws(
        new=uniform[0],
        user=uniform[1],
        same_class=uniform[2],
        same_name=uniform[3],
        continued=uniform[4],
        alone=uniform[5],
        series_return=series_return.tolist(),
        user_return=seconds[0].tolist(),
        class_return=seconds[1].tolist(),
        wait=seconds[3].tolist(),
        end_to_next=(scores.span + seconds[2] + seconds[3]).tolist(),
    )


class _Author:
    """Decides batch by batch; the state is what users remember and see."""

    def __init__(
        self,
        model: WorkloadModel,
        plan: BatchPlan,
        scores: NormalScores,
        draws: _Draws,
        rng: np.random.Generator,
    ) -> None:
        self._model = model
        self._plan = plan
        self._scores = scores
        self._draws = draws
        self._times: list[float] = plan.time.tolist()
        self._class_of: list[int] = plan.job_class.tolist()
        self._of_batch = [0] * len(self._times)
        self._own: list[float] = scores.own.tolist()
        self._last: list[int] = scores.last.tolist()
        self._classes = [_class_state(c, rng) for c in model.classes]
        self._outstanding: list[list[tuple[float, int]]] = []
        """For each user a heap of (expected end, nodes) of its long jobs."""
        self._nodes: list[int] = []
        """Nodes of each user's unfinished long jobs."""
        self._users = Recency()
        self._names: list[int] = []
        """Names each user has."""
        self._series: list[tuple[int, int, int, int]] = []
        """User, name, nodes and limit of each series."""
        self._known: set[tuple[int, int, int, int]] = set()
        self._series_scores: list[float] = []
        self._ends: list[float] = []
        """When the last of each series' long jobs is expected to end."""

    def write(self) -> None:
        """All batches, in order of arrival."""
        for batch, now in enumerate(self._plan.time.tolist()):
            state = self._classes[self._class_of[batch]]
            series, submitted = self._author_of(batch, now, state)
            self._submit(batch, series, (now, submitted), state)

    def _author_of(self, batch: int, now: float, state: _ClassState) -> tuple[int, float]:
        """Whose batch it is, and when it is submitted: ``now`` but for a chain's link that was due before."""
        if self._draws.new[batch] < state.described.new_series:
            return self._open(batch, now, state), now
        if state.due and state.due[0][0] <= now:
            due, series = heapq.heappop(state.due)
            return series, due if now - due <= ADOPTION else now
        instant = now - self._draws.series_return[batch]
        apart = now if self._draws.alone[batch] < self._model.habits.alone else math.inf
        known = state.series.used_at(
            instant, lambda s: self._ends[s] <= apart and self._free(self._series[s][0], now)
        )
        return self._open(batch, now, state) if known is None else known, now

    def _submit(self, batch: int, series: int, times: tuple[float, float], state: _ClassState) -> None:
        """Note the batch: ``times`` are its turn and its submission."""
        now, submitted = times
        self._of_batch[batch] = series
        self._times[batch] = submitted
        user, _, _, limit = self._series[series]
        state.series.touch(series, now)
        state.users.touch(user, now)
        self._users.touch(user, now)
        if limit >= self._model.chains.min_limit:
            self._occupy(batch, series, submitted, state)
            self._continue(batch, series, submitted, state)

    def _free(self, user: int, now: float) -> bool:
        """Whether the user has no more unfinished long work than users are seen to have."""
        jobs = self._outstanding[user]
        while jobs and jobs[0][0] <= now:
            self._nodes[user] -= heapq.heappop(jobs)[1]
        return self._nodes[user] <= self._model.habits.most_outstanding

    def _occupy(self, batch: int, series: int, submitted: float, state: _ClassState) -> None:
        """Note how long the batch's jobs will be unfinished, as far as known without a scheduler."""
        user, _, nodes, limit = self._series[series]
        shared = self._scores.series_weight * self._series_scores[series] + SCORE_END
        first = self._last[batch - 1] + 1 if batch else 0
        end = len(state.fraction) - 1
        for own in self._own[first : self._last[batch] + 1]:
            place = min(max(int((shared + own) / SCORE_STEP), 0), end)
            over = submitted + self._draws.wait[batch] + limit * state.fraction[place]
            heapq.heappush(self._outstanding[user], (over, nodes))
            self._nodes[user] += nodes
            self._ends[series] = max(self._ends[series], over)

    def _open(self, batch: int, now: float, state: _ClassState) -> int:
        """A new series with a request of the class, by a new or a known user."""
        user = self._user(batch, now, state)
        state.phase = (state.phase + GOLDEN) % 1
        shape = state.described.shapes[int(np.searchsorted(state.edges, state.phase, side="right"))]
        known = (user, self._names[user] - 1, shape.nodes, shape.limit)
        another = self._draws.same_name[batch] >= self._model.habits.same_name
        if another or not self._names[user] or known in self._known:
            self._names[user] += 1
        self._series.append((user, self._names[user] - 1, shape.nodes, shape.limit))
        self._known.add(self._series[-1])
        self._series_scores.append(state.next_score())
        self._ends.append(0.0)
        return len(self._series) - 1

    def _user(self, batch: int, now: float, state: _ClassState) -> int:
        """Whose the new series is."""
        habits = self._model.habits
        known: int | None = None
        if self._draws.user[batch] >= habits.new_user:
            if self._draws.same_class[batch] < habits.same_class:
                instant = now - self._draws.class_return[batch]
                known = state.users.used_at(instant, lambda u: self._free(u, now))
            if known is None:
                instant = now - self._draws.user_return[batch]
                known = self._users.used_at(instant, lambda u: self._free(u, now))
        return self._new_user() if known is None else known

    def _new_user(self) -> int:
        self._names.append(0)
        self._outstanding.append([])
        self._nodes.append(0)
        return len(self._names) - 1

    def _continue(self, batch: int, series: int, submitted: float, state: _ClassState) -> None:
        """Where the batch ends in a timeout, the user may be going to submit the next link."""
        if self._draws.continued[batch] >= self._model.chains.continued:
            return
        score = self._scores.series_weight * self._series_scores[series] + self._own[self._last[batch]]
        if score > state.timeout_score:
            limit = self._series[series][3]
            due = submitted + limit + self._draws.end_to_next[batch]
            heapq.heappush(state.due, (max(due, submitted), series))

    def table(self) -> SeriesTable:
        """What was decided, as columns."""
        user, name, nodes, limit = np.array(self._series, dtype=np.int64).reshape(-1, 4).T
        score = np.array(self._series_scores)
        of_batch = np.array(self._of_batch, dtype=np.int64)
        return SeriesTable(user, name, nodes, limit, score, of_batch, np.array(self._times))


def _class_state(described: JobClass, rng: np.random.Generator) -> _ClassState:
    """A class before its first batch."""
    weights = np.array([s.weight for s in described.shapes])
    edges = np.cumsum(weights)[:-1] / weights.sum()
    normal = NormalDist()
    timeout_score = normal.inv_cdf(min(max(1 - described.timeout, 1e-9), 1 - 1e-9))
    steps = int(2 * SCORE_END / SCORE_STEP) + 1
    uniform = np.array([normal.cdf(k * SCORE_STEP - SCORE_END) for k in range(steps)])
    below = np.minimum(uniform / max(1 - described.timeout, 1e-9), 1)
    fraction = np.where(uniform > 1 - described.timeout, 1, 10 ** draw(described.runtime, below))
    fraction *= 1 - described.cancelled_pending
    phases = rng.random(2).tolist()
    return _ClassState(described, edges, phases[0], phases[1], timeout_score, fraction.tolist())

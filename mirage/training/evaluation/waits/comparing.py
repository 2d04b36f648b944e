"""Forecasts of recorded waits compared: earlier jobs train, later ones choose, the latest test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import ConfigError
from mirage.training.evaluation.figures import ENDS, LEVELS, pinball
from mirage.training.evaluation.waits import methods
from mirage.training.evaluation.waits.features import features
from mirage.training.evaluation.waits.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.evaluation.waits.records import Float64, Int64

CHOOSE_FROM, TEST_FROM = 0.5, 0.75
"""Places in the order of submission: half of the jobs train, a quarter chooses, the last quarter tests."""

CLOSE = 1 / 6
"""Hours: a forecast within ten minutes is close."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How many jobs are asked about, and how often trees are grown."""

    most: int = 20_000
    """Jobs of each part, at most; evenly spaced where there are more."""
    seeds: int = 3
    planned: int = 200
    """Jobs of the test for which a look-ahead is played where the cluster is known."""


@dataclass(frozen=True, slots=True)
class WaitScore:
    """How one method predicted the waits of the same jobs. Hours; shares within 0 and 1."""

    method: str
    seeds: int
    """Over which the figures are means; 0: there is no chance in it."""
    jobs: int
    error_median: float
    """Of |P50 - wait|."""
    error_p90: float
    close: float
    """Share of P50 within ten minutes of the wait."""
    pinball: float
    """Mean quantile loss over P10, P25, P50, P75 and P90."""
    pinball_least: float
    pinball_most: float
    """Of the seeds."""
    coverage: float | None
    """Share of waits within P10 and P90; ``None`` where one time is predicted."""
    seconds: float
    """By the wall's clock, training and all."""


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """One trace."""

    trace: str
    test_from: int
    """Submission of the first job of the test."""
    jobs: int
    """With a recorded wait."""
    wait_median: float
    wait_p90: float
    """Of the test's jobs, hours."""
    all_tested: tuple[WaitScore, ...]
    planned: tuple[WaitScore, ...]
    """On the fewer jobs that the look-ahead was asked about; empty where there was none."""


def compare_waits(
    table: JobTable,
    choice: Choice,
    cluster: ClusterConfig | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> WaitFigures:
    """The figures of one trace. ``say`` is told what takes time.

    Raises ``TraceError`` where no wait is recorded, ``ConfigError`` where there are too few jobs to split.
    """
    records = Records.of(table)
    parts = split(records, choice.most)
    taught, chosen, tested = parts
    recent = {number: records.recent(rows) for number, rows in enumerate(parts)}
    say(f"{table.source}: {len(taught)} jobs train, {len(chosen)} choose, {len(tested)} test")
    seen = [features(records, rows, recent[number]) for number, rows in enumerate(parts)]
    hours = [records.wait_hours(rows) for rows in parts]
    answers: dict[str, list[tuple[Float64, float]]] = {
        "mean": [_timed(lambda: methods.by_mean(recent[2]))],
        "quantile of class": [_timed(lambda: methods.by_class(table, tested, recent[2]))],
    }
    answers["boosted trees"] = []
    for seed in range(choice.seeds):
        say(f"{table.source}: trees, seed {seed}")
        grow = partial(methods.by_trees, (seen[0], hours[0]), (seen[1], hours[1]), seen[2], seed)
        answers["boosted trees"].append(_timed(grow))
    planned = _planned(records, cluster, tested, answers, choice, say) if cluster is not None else ()
    return WaitFigures(
        trace=table.source,
        test_from=int(table.submit[tested[0]]),
        jobs=len(records.started),
        wait_median=float(np.median(hours[2])),
        wait_p90=float(np.quantile(hours[2], 0.9)),
        all_tested=tuple(score(name, told, hours[2]) for name, told in answers.items()),
        planned=planned,
    )


def split(records: Records, most: int) -> tuple[Int64, Int64, Int64]:
    """Rows that train, choose and test, by submission; a wait that is known only in the next part is left out.

    Raises ``ConfigError`` where a part is empty.
    """
    rows, table = records.started, records.table
    first, second = (table.submit[rows[int(len(rows) * place)]] for place in (CHOOSE_FROM, TEST_FROM))
    submit, start = table.submit[rows], table.start[rows]
    teaching = rows[start < first]
    choosing = rows[(submit >= first) & (start < second)]
    testing = rows[submit >= second]
    parts = tuple(_thinned(part, most) for part in (teaching, choosing, testing))
    if not all(len(part) for part in parts):
        raise ConfigError(table.source, f"{len(rows)} recorded waits are too few to train, choose and test")
    return parts[0], parts[1], parts[2]


def _thinned(rows: Int64, most: int) -> Int64:
    if len(rows) <= most:
        return rows
    return np.asarray(rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)])


def _timed(answer: Callable[[], Float64]) -> tuple[Float64, float]:
    begin = perf_counter()
    found = answer()
    return found, perf_counter() - begin


def _planned(
    records: Records,
    cluster: ClusterConfig,
    tested: Int64,
    answers: dict[str, list[tuple[Float64, float]]],
    choice: Choice,
    say: Callable[[str], None],
) -> tuple[WaitScore, ...]:
    """Scores of all methods on the jobs that a look-ahead could answer for."""
    places = _thinned(np.arange(len(tested)), choice.planned)
    say(f"{records.table.source}: look-ahead for {len(places)} jobs")
    found, seconds = _timed(lambda: methods.by_lookahead(records, cluster, tested[places]))
    known = np.flatnonzero(np.isfinite(found).all(axis=1))
    if not len(known):
        raise ConfigError(
            "--cluster", f"a look-ahead on {cluster.name} answers for no job of {records.table.source}"
        )
    places, hours = places[known], records.wait_hours(tested[places[known]])
    fewer = {name: [(told[places], took) for told, took in runs] for name, runs in answers.items()}
    fewer["look-ahead"] = [(found[known], seconds)]
    return tuple(score(name, told, hours) for name, told in fewer.items())


def score(name: str, runs: list[tuple[Float64, float]], wait: Float64) -> WaitScore:
    """Means over runs of what each predicted, shape (jobs, levels), and the seconds that it took."""
    losses = [float(pinball(wait, told, LEVELS).mean()) for told, _ in runs]
    errors = [abs(told[:, LEVELS.index(0.5)] - wait) for told, _ in runs]
    ends = [(told[:, LEVELS.index(ENDS[0])], told[:, LEVELS.index(ENDS[1])]) for told, _ in runs]
    spread = any((high > low).any() for low, high in ends)
    return WaitScore(
        method=name,
        seeds=len(runs) if len(runs) > 1 else 0,
        jobs=len(wait),
        error_median=float(np.mean([np.median(error) for error in errors])),
        error_p90=float(np.mean([np.quantile(error, 0.9) for error in errors])),
        close=float(np.mean([np.mean(error <= CLOSE) for error in errors])),
        pinball=float(np.mean(losses)),
        pinball_least=min(losses),
        pinball_most=max(losses),
        coverage=float(np.mean([((wait >= low) & (wait <= high)).mean() for low, high in ends]))
        if spread
        else None,
        seconds=float(np.mean([took for _, took in runs])),
    )

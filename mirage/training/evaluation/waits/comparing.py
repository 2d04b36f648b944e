"""Compare forecasts of recorded waits: earlier jobs train, later ones validate, the latest test."""

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
"""Parts in the order of submission: half of the jobs train, a quarter validates, the last quarter tests."""

CLOSE = 1 / 6
"""Hours: a forecast within ten minutes is close."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Numbers of jobs and of trainings of trees."""

    most: int = 20_000
    """Most jobs of each part; evenly spaced where more exist."""
    seeds: int = 3
    planned: int = 200
    """Test jobs for which a look-ahead runs if the cluster is known."""


@dataclass(frozen=True, slots=True)
class WaitScore:
    """Accuracy of one method on the same waits. Hours; shares within 0 and 1."""

    method: str
    seeds: int
    """Number of seeds of the mean; 0: the method is deterministic."""
    jobs: int
    error_median: float
    """Median of |P50 - wait|."""
    error_p90: float
    close: float
    """Share of P50 within ten minutes of the wait."""
    pinball: float
    """Mean quantile loss over P10, P25, P50, P75 and P90."""
    pinball_least: float
    pinball_most: float
    """Smallest loss of the seeds."""
    coverage: float | None
    """Share of waits within P10 and P90; ``None`` for forecasts of one time."""
    seconds: float
    """Wall-clock seconds, including training."""


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """Figures of one trace."""

    trace: str
    test_from: int
    """Submission of the first job of the test."""
    jobs: int
    """Number of jobs with a recorded wait."""
    wait_median: float
    wait_p90: float
    """Median wait of the test's jobs, in hours."""
    all_tested: tuple[WaitScore, ...]
    planned: tuple[WaitScore, ...]
    """Scores on the fewer jobs of the look-ahead; empty without it."""


def compare_waits(
    table: JobTable,
    choice: Choice,
    cluster: ClusterConfig | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> WaitFigures:
    """The figures of one trace. ``say`` reports steps that take long.

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
    """Rows for training, validation and test, by submission; a wait that ends in the next part is left out.

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
    """Scores of all methods on the jobs that a look-ahead can predict."""
    places = _thinned(np.arange(len(tested)), choice.planned)
    say(f"{records.table.source}: look-ahead for {len(places)} jobs")
    found, seconds = _timed(lambda: methods.by_lookahead(records, cluster, tested[places]))
    known = np.flatnonzero(np.isfinite(found).all(axis=1))
    if not len(known):
        raise ConfigError(
            "--cluster", f"a look-ahead on {cluster.name} can predict no job of {records.table.source}"
        )
    places, hours = places[known], records.wait_hours(tested[places[known]])
    fewer = {name: [(told[places], took) for told, took in runs] for name, runs in answers.items()}
    fewer["look-ahead"] = [(found[known], seconds)]
    return tuple(score(name, told, hours) for name, told in fewer.items())


def score(name: str, runs: list[tuple[Float64, float]], wait: Float64) -> WaitScore:
    """Means over runs of each prediction, shape (jobs, levels), and its seconds."""
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

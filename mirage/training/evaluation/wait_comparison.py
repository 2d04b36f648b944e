"""Compare forecasts of recorded waits: earlier jobs train, later ones validate, the latest test.

The figures are given as a table on the terminal, as Markdown and as values for JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from mirage.domain.errors import ConfigError
from mirage.domain.quantileloss import pinball
from mirage.replay.wording import hours, instant, percent
from mirage.training.evaluation import wait_methods
from mirage.training.evaluation.figures import ENDS, LEVELS
from mirage.training.evaluation.wait_methods import WaitRecords, features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.evaluation.wait_methods import Float64, Int64

HEADINGS = (
    "method",
    "median error, h",
    "P90 error, h",
    "within 10 min",
    "pinball, h",
    "by seed",
    "P10-P90 covers",
    "seconds",
)

MEANING = (
    "Forecasts are made when each job is submitted, from the records until then. Errors are those of P50; pinball "
    "is the mean quantile loss of P10, P25, P50, P75 and P90; 80 % of the waits should lie within P10 and P90. "
    "Half of the jobs train, a quarter validates, the last quarter by submission tests; figures of trained "
    "methods are means over seeds. A trace that holds only jobs seen pending limits the comparison to these."
)


def _row(score: WaitScore) -> tuple[str, ...]:
    seeds = f"{hours(score.pinball_least)} to {hours(score.pinball_most)}" if score.seeds else ""
    coverage = percent(score.coverage) if score.coverage is not None else ""
    return (
        score.method,
        hours(score.error_median),
        hours(score.error_p90),
        percent(score.close),
        hours(score.pinball),
        seeds,
        coverage,
        f"{score.seconds:.1f}",
    )


def _sections(figures: Sequence[WaitFigures]) -> Iterator[tuple[str, tuple[WaitScore, ...]]]:
    for one in figures:
        waits = f"wait median {hours(one.wait_median)} h, P90 {hours(one.wait_p90)} h"
        told = f"{one.trace}: {one.all_tested[0].jobs:,} jobs from {instant(one.test_from)}, {waits}"
        yield told, one.all_tested
        if one.planned:
            yield (
                f"{one.trace}: the {one.planned[0].jobs:,} of them for which a look-ahead ran",
                one.planned,
            )


def wait_tables(figures: Sequence[WaitFigures]) -> Iterator[Table]:
    """Tables for a terminal."""
    for title, scores in _sections(figures):
        table = Table(box=SIMPLE_HEAD, title=title)
        for place, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="right" if place else "left")
        for score in scores:
            table.add_row(*_row(score))
        yield table


def waits_markdown(figures: Sequence[WaitFigures]) -> str:
    """Markdown tables with their description."""
    lines: list[str] = []
    for title, scores in _sections(figures):
        lines += [f"**{title}**", "", "| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
        lines += ["| " + " | ".join(_row(score)) + " |" for score in scores] + [""]
    return "\n".join([*lines, MEANING, ""])


def waits_document(figures: Sequence[WaitFigures]) -> dict[str, object]:
    """All figures, as values for ``json.dumps``."""
    return {"units": "hours; shares are fractions", "said": [MEANING], "traces": [asdict(one) for one in figures]}


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
    records = WaitRecords.of(table)
    parts = split(records, choice.most)
    taught, chosen, tested = parts
    recent = {number: records.recent(rows) for number, rows in enumerate(parts)}
    say(f"{table.source}: {len(taught)} jobs train, {len(chosen)} choose, {len(tested)} test")
    seen = [features(records, rows, recent[number]) for number, rows in enumerate(parts)]
    hours = [records.wait_hours(rows) for rows in parts]
    answers: dict[str, list[tuple[Float64, float]]] = {
        "mean": [_timed(lambda: wait_methods.by_mean(recent[2]))],
        "quantile of class": [_timed(lambda: wait_methods.by_class(table, tested, recent[2]))],
    }
    answers["boosted trees"] = []
    for seed in range(choice.seeds):
        say(f"{table.source}: trees, seed {seed}")
        grow = partial(wait_methods.by_trees, (seen[0], hours[0]), (seen[1], hours[1]), seen[2], seed)
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


def split(records: WaitRecords, most: int) -> tuple[Int64, Int64, Int64]:
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
    records: WaitRecords,
    cluster: ClusterConfig,
    tested: Int64,
    answers: dict[str, list[tuple[Float64, float]]],
    choice: Choice,
    say: Callable[[str], None],
) -> tuple[WaitScore, ...]:
    """Scores of all methods on the jobs that a look-ahead can predict."""
    places = _thinned(np.arange(len(tested)), choice.planned)
    say(f"{records.table.source}: look-ahead for {len(places)} jobs")
    found, seconds = _timed(lambda: wait_methods.by_lookahead(records, cluster, tested[places]))
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

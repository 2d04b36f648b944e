"""Figures of recorded waits as a table on the terminal, as Markdown and as values for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from mirage.replay.wording import hours, instant, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.training.evaluation.waits.comparing import WaitFigures, WaitScore

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

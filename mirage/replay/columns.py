"""The columns in which policies are compared, the same on the terminal and on the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.replay.panel import ORACLE, REACTIVE
from mirage.replay.wording import hours, hours_interval, percent, percent_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.replay.bootstrap import Estimate
    from mirage.replay.metrics import PolicyMetrics


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the report's table: heading, format and source of a metric."""

    heading: str
    """Lines as the terminal breaks them."""
    read: Callable[[PolicyMetrics], Estimate | None]
    share: bool = False
    """A fraction, shown in percent; else hours."""
    essential: bool = False
    """Kept on a narrow terminal."""

    def cell(self, row: PolicyMetrics) -> tuple[str, str]:
        """The figure and its interval as text; empty where they do not apply or are undetermined."""
        estimate = self.read(row)
        if estimate is None:
            return "", ""
        if self.share:
            return percent(estimate.value), percent_interval(estimate)
        return hours(estimate.value), hours_interval(estimate)


def _reduction(row: PolicyMetrics) -> Estimate | None:
    return row.reduction if row.policy != REACTIVE else None


def _regret(row: PolicyMetrics) -> Estimate | None:
    return row.regret if row.policy != ORACLE else None


COLUMNS = (
    Column("inter-\nruption\nmean, h", lambda row: row.interruption_mean, essential=True),
    Column("\nmedian,\nh", lambda row: row.interruption_median),
    Column("\np90,\nh", lambda row: row.interruption_p90),
    Column("\noverlap\nmean, h", lambda row: row.overlap_mean, essential=True),
    Column("no\ninter-\nruption", lambda row: row.uninterrupted_share, share=True, essential=True),
    Column("\nwithin\n30 min", lambda row: row.close_share, share=True),
    Column("cost\ne_O = 1,\nh", lambda row: row.costs[0].hours, essential=True),
    Column("cost\ne_O = \N{VULGAR FRACTION ONE HALF},\nh", lambda row: row.costs[1].hours),
    Column("less in-\nterrupted\nby", _reduction, share=True, essential=True),
    Column("|x| above\noracle,\nh", _regret),
)

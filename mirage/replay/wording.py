"""A replay's figures in words and columns, the same on the terminal and on the page.

Numbers are as people write them; sentences claim no more than the data. On a terminal every figure fits 120
columns, the essential ones 80.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mirage.domain.job import UNLIMITED
from mirage.domain.objective import ZERO_WITHIN
from mirage.replay.intervals import FEWEST_BLOCKS
from mirage.replay.metrics import ALL, CLOSE_WITHIN
from mirage.replay.results import ORACLE, REACTIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.replay.intervals import IntervalEstimate
    from mirage.replay.metrics import PolicyMetrics, ReplayMetrics
    from mirage.replay.results import ReplayResult

UNDETERMINED = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
CALENDAR_FROM = 10 * 365 * 86_400
"""Times above this are calendar time; below, they count from the start of the trace."""

DEFINITIONS = (
    ("x", "start of the successor minus end of the predecessor"),
    ("interruption", "x where positive, else 0: no link of the chain runs"),
    ("overlap", "\N{MINUS SIGN}x where x is negative, else 0: two links hold nodes where one would do"),
    ("no interruption", f"at most {ZERO_WITHIN // 60} min, the period of Slurm's main loop"),
    ("within 30 min", f"|x| of at most {CLOSE_WITHIN // 60} min"),
    ("cost", "interruption + e_O \N{MULTIPLICATION SIGN} overlap, in hours; with e_O = 1 it is |x|"),
    ("less interrupted by", "reduction of mean interruption against reactive submission"),
)
"""Definitions of the words and columns of a report."""

CLASS_MEANING = "the reactive policy's interruption on the same episode, low to 2 h, medium to 12 h, heavy above"


def hours(value: float) -> str:
    """Hours to a hundredth, a tenth from 10 on."""
    if not math.isfinite(value):
        return UNDETERMINED
    rounded = round(value, 1 if abs(value) >= 9.995 else 2) + 0.0
    return (f"{rounded:.1f}" if abs(rounded) >= 10 else f"{rounded:.2f}").replace("-", MINUS)


def percent(fraction: float) -> str:
    """A whole percentage with a proper minus; far below nothing, only that it is."""
    if not math.isfinite(fraction):
        return UNDETERMINED
    if fraction < -9.995:
        return f"< {MINUS}999 %"
    return f"{round(100 * fraction) + 0:d} %".replace("-", MINUS)


def hours_interval(estimate: IntervalEstimate) -> str:
    """The interval of an estimate in hours; empty if it is missing or has no width."""
    low, high = hours(estimate.low), hours(estimate.high)
    return _joined(low, high) if estimate.bounded and low != high else ""


def percent_interval(estimate: IntervalEstimate) -> str:
    """The interval of a fraction; empty if it is missing or has no width."""
    low, high = percent(estimate.low), percent(estimate.high)
    if not estimate.bounded or low == high:
        return ""
    return _joined(low.removesuffix(" %"), high)


def _joined(low: str, high: str) -> str:
    """A range; in words where a dash would meet a minus."""
    return f"{low} to {high}" if MINUS in low + high else f"{low}\N{EN DASH}{high}"


def duration(seconds: int) -> str:
    """A length of time in the largest units that say it exactly enough: ``48 h``, ``10 min``, ``7 d``."""
    if seconds >= UNLIMITED:
        return "unlimited"
    for unit, size, least in (("d", 86_400, 3 * 86_400), ("h", 3_600, 3_600), ("min", 60, 60)):
        if seconds >= least and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s" if seconds < 3_600 else f"{seconds / 3_600:.1f} h"


def instant(time: int) -> str:
    """A calendar time (UTC), or the day counted from the trace's own zero."""
    if time <= CALENDAR_FROM:
        return f"day {time / 86_400:.1f}"
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 link``, ``2 links``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def describe_replay(result: ReplayResult, metrics: ReplayMetrics) -> str:
    """Summary of the replay's settings, in one sentence."""
    chains = f"chains of {plural(result.links, 'link')}"
    size = f"{plural(result.nodes, 'node')} for {duration(result.limit)} each"
    return (
        f"{plural(metrics.episodes, 'episode')} ({chains}, {size}) on {result.cluster}, one every "
        f"{duration(result.every)} from {instant(result.start)} to {instant(result.end)}, "
        f"a decision every {duration(result.tick)}."
    )


def headlines(metrics: ReplayMetrics) -> tuple[str, ...]:
    """Main results of the replay, in up to three sentences."""
    best = best_policy(metrics)
    if best is None or not best.pairs:
        return ()
    said = [_best_sentence(metrics, best)]
    if ORACLE in metrics.policies:
        said.append(_oracle_sentence(metrics, best))
    return tuple(said)


def best_policy(metrics: ReplayMetrics) -> PolicyMetrics | None:
    """The policy of least mean |x| among those that neither wait for the end nor know the future."""
    compared = [row for row in metrics.of_load() if row.policy not in (REACTIVE, ORACLE)]
    return min(compared, key=lambda row: row.distance_mean.value, default=None)


def _best_sentence(metrics: ReplayMetrics, best: PolicyMetrics) -> str:
    suffered = f"{hours(best.interruption_mean.value)} h of interruption"
    own = f"{suffered} and {hours(best.overlap_mean.value)} h of overlap"
    if best.reduction is None:
        return f"{best.policy} came closest to a seamless handover: {own} on average."
    base = metrics.row(REACTIVE)
    against = f"{hours(base.interruption_mean.value)} h of interruption under reactive submission"
    if best.distance_mean.value >= base.distance_mean.value:
        return (
            f"No policy came closer to a seamless handover than reactive submission, which was interrupted "
            f"{hours(base.interruption_mean.value)} h on average; the next, {best.policy}, had {own}."
        )
    change = _change(metrics, best.reduction)
    return f"{best.policy} came closest to a seamless handover: {own} on average, against {against}. {change}"


def _change(metrics: ReplayMetrics, reduction: IntervalEstimate) -> str:
    """The reduction of interruption, with how sure it is."""
    if not math.isfinite(reduction.value):
        return "There was no interruption to reduce."
    size = f"That is {percent(abs(reduction.value))} {'less' if reduction.value >= 0 else 'more'} interruption"
    if not reduction.bounded:
        return f"{size}; the episodes cover too few days for an interval."
    interval = f"{_level(metrics)} interval of the reduction: {percent_interval(reduction)}"
    if reduction.low <= 0 <= reduction.high:
        return f"{size}, but these episodes do not rule out no change ({interval})."
    return f"{size} ({interval})."


def _level(metrics: ReplayMetrics) -> str:
    return percent(metrics.resampling.level)


def _oracle_sentence(metrics: ReplayMetrics, best: PolicyMetrics) -> str:
    floor = metrics.row(ORACLE).distance_mean.value
    text = (
        f"The successor started {hours(best.distance_mean.value)} h from the predecessor's end on average; "
        f"with knowledge of the future (oracle) it could have been {hours(floor)} h"
    )
    closed = best.gap_closed
    if closed is None or not math.isfinite(closed.value) or closed.value <= 0:
        return f"{text}."
    return f"{text}: {best.policy} closes {percent(closed.value)} of the way from reactive to there."


def describe_intervals(metrics: ReplayMetrics) -> str:
    """Method of the confidence intervals, in one sentence."""
    how = metrics.resampling
    block = f"{plural(metrics.block_episodes, 'episode')} or {duration(how.block)} a block"
    return (
        f"{_level(metrics)} intervals: circular block bootstrap over episodes in order of start ({block}, "
        f"{how.resamples:,} resamples, seed {how.seed}); none on fewer than {FEWEST_BLOCKS} blocks."
    )


Cell = tuple[str, str]
"""A figure, and its interval or another second value in small print; empty where they do not apply."""
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ReportColumn(Generic[Row]):
    """One figure of every row of a report's table."""

    heading: str
    """Lines as the terminal breaks them."""
    cell: Callable[[Row], Cell]
    essential: bool = False
    """Kept on a narrow terminal."""


def hours_cell(estimate: IntervalEstimate | None) -> Cell:
    """A figure in hours with its interval; empty where there is none."""
    return ("", "") if estimate is None else (hours(estimate.value), hours_interval(estimate))


def share_cell(estimate: IntervalEstimate | None) -> Cell:
    """A fraction in percent with its interval; empty where there is none."""
    return ("", "") if estimate is None else (percent(estimate.value), percent_interval(estimate))


def _reduction(row: PolicyMetrics) -> IntervalEstimate | None:
    return row.reduction if row.policy != REACTIVE else None


def _regret(row: PolicyMetrics) -> IntervalEstimate | None:
    return row.regret if row.policy != ORACLE else None


COLUMNS: tuple[ReportColumn[PolicyMetrics], ...] = (
    ReportColumn("inter-\nruption\nmean, h", lambda row: hours_cell(row.interruption_mean), essential=True),
    ReportColumn("\nmedian,\nh", lambda row: hours_cell(row.interruption_median)),
    ReportColumn("\np90,\nh", lambda row: hours_cell(row.interruption_p90)),
    ReportColumn("\noverlap\nmean, h", lambda row: hours_cell(row.overlap_mean), essential=True),
    ReportColumn("no\ninter-\nruption", lambda row: share_cell(row.uninterrupted_share), essential=True),
    ReportColumn("\nwithin\n30 min", lambda row: share_cell(row.close_share)),
    ReportColumn("cost\ne_O = 1,\nh", lambda row: hours_cell(row.costs[0].hours), essential=True),
    ReportColumn("cost\ne_O = \N{VULGAR FRACTION ONE HALF},\nh", lambda row: hours_cell(row.costs[1].hours)),
    ReportColumn("less in-\nterrupted\nby", lambda row: share_cell(_reduction(row)), essential=True),
    ReportColumn("|x| above\noracle,\nh", lambda row: hours_cell(_regret(row))),
)


FULL_WIDTH = 116
"""Columns of the terminal that every figure needs, with policy names of up to 14 letters."""


def replay_table(metrics: ReplayMetrics, width: int = FULL_WIDTH) -> Table:
    """One row per policy with its intervals for all episodes, then one row per policy and load class.

    ``width`` is the terminal's; below ``FULL_WIDTH`` only the essential columns are shown.
    """
    columns = tuple(c for c in COLUMNS if c.essential or width >= FULL_WIDTH)
    table = Table(box=SIMPLE_HEAD, padding=0, caption=_caption(metrics), caption_justify="left")
    table.add_column("\n\npolicy", overflow="fold")
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    for load in (ALL, *(str(load) for load, _ in metrics.classes)):
        _add_section(table, metrics.of_load(load), load, columns)
    return table


def _add_section(
    table: Table, rows: tuple[PolicyMetrics, ...], load: str, columns: tuple[ReportColumn[PolicyMetrics], ...]
) -> None:
    """A line that names the class and its number of handovers, then the policies."""
    table.add_row(Text(f"{load} ({rows[0].pairs if rows else 0:,})", style="bold"))
    for row in rows:
        cells = (column.cell(row) for column in columns)
        table.add_row(Text(row.policy), *(_stack(*cell, shown=load == ALL) for cell in cells))
    table.add_section()


def _stack(value: str, interval: str, *, shown: bool) -> Text:
    """A figure with its interval beneath, dimmed, where intervals are shown."""
    return Text.assemble(value, ("\n" + interval, "dim")) if interval and shown else Text(value)


def _caption(metrics: ReplayMetrics) -> Text:
    lines = [*(f"{word}: {meaning}." for word, meaning in DEFINITIONS), f"load: {CLASS_MEANING}."]
    return Text("\n".join([*lines, describe_intervals(metrics)]), style="dim")

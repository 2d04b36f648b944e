"""The statistics of a trace as tables for the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirage.domain.texts import printable
from mirage.trace.stats import limit_label, size_label

if TYPE_CHECKING:
    from mirage.trace.generator.sessions import HandChainStats
    from mirage.trace.stats import Share, TraceStats, Waits

NOTHING = "\N{EN DASH}"
WAIT_COLUMNS = ("jobs", "mean", "median", "p90", "p99", "<=2 h", "2-12 h", ">12 h")


def stats_tables(stats: TraceStats) -> Group:
    """Return all statistics except the arrivals by hour, which only ``--json`` prints."""
    tables = (
        _overview(stats),
        _shares("state", stats.states, stats.load.unit),
        _shares("size", stats.sizes, stats.load.unit),
        _shares("requested limit", stats.limits, stats.load.unit),
        _waits(stats),
        _chains(stats.chains),
    )
    return Group(*(part for table in tables for part in (table, Text())))


def _overview(stats: TraceStats) -> Table:
    load, run = stats.load, stats.run_shares
    levels = (load.hourly_p5, load.hourly_median, load.hourly_p95)
    table = _titled(Text(stats.source), ("", ""))
    for name, value in (
        ("jobs", f"{stats.jobs:,}"),
        ("jobs that never started", f"{stats.never_started:,}"),
        ("users", f"{stats.users:,}"),
        ("span", f"{stats.span_days:,.1f} days"),
        (f"{load.unit} in use: peak", f"{load.peak:,}"),
        ("hourly: 5 %, median, 95 %", ", ".join(_number(level, 1) for level in levels)),
        (f"{load.unit[:-1]}-hours", f"{load.unit_hours:,.0f}"),
        ("utilisation", NOTHING if load.utilisation is None else f"{load.utilisation:.1%} of {load.capacity:,}"),
        (
            "run time / time limit: 10 %, median, 90 %",
            ", ".join(_number(x) for x in (run.p10, run.median, run.p90)),
        ),
        ("ran for 98 % of the time limit or more", _percent(run.met_limit)),
    ):
        table.add_row(name, value)
    return table


def _shares(name: str, shares: tuple[Share, ...], unit: str) -> Table:
    table = _titled(Text(f"By {name}"), (name, "jobs", "of all jobs", f"of {unit[:-1]}-hours"))
    for share in shares:
        table.add_row(
            Text(printable(share.label)),
            f"{share.jobs:,}",
            _percent(share.share_of_jobs),
            _percent(share.share_of_hours),
        )
    return table


def _waits(stats: TraceStats) -> Table:
    unit = stats.load.unit
    table = _titled(Text("Waits of the jobs that started, in hours"), ("limit, h", unit, *WAIT_COLUMNS))
    for c in stats.wait_classes:
        size = size_label(c.size_from, None if c.size_to is None else c.size_to + 1)
        table.add_row(limit_label(c.limit_above, c.limit_to).removesuffix(" h"), size, *_wait_cells(c.waits))
    table.add_section()
    table.add_row("all", "all", *_wait_cells(stats.waits))
    return table


def _wait_cells(waits: Waits) -> list[str]:
    hours = [_number(value) for value in (waits.mean, waits.median, waits.p90, waits.p99)]
    shares = [_percent(share) for share in (waits.up_to_2h, waits.from_2h_to_12h, waits.above_12h)]
    return [f"{waits.jobs:,}", *hours, *shares]


def _chains(chains: HandChainStats) -> Table:
    table = _titled(Text("Manual chains of jobs with time limits of 12 h or more"), ("", ""))
    for name, value in (
        ("pairs (same user, name and nodes)", f"{chains.pairs:,}"),
        ("users", f"{chains.users:,}"),
        ("pairs that overlap", f"{chains.overlapping:,}"),
        ("pairs with an interruption", f"{chains.gaps:,}"),
        ("interruption: mean, median", f"{_number(chains.gap_mean)} h, {_number(chains.gap_median)} h"),
        (
            "of it before submission, in the queue",
            f"{_number(chains.late_mean)} h, {_number(chains.queued_mean)} h",
        ),
        ("submitted before the end", _percent(chains.submitted_ahead)),
        ("submitted within 10 min after it", _percent(chains.submitted_within_10_minutes)),
        ("submitted more than 1 h after it", _percent(chains.submitted_after_an_hour)),
    ):
        table.add_row(name, value)
    return table


def _titled(title: Text, columns: tuple[str, ...]) -> Table:
    """Return a table with the first column left-aligned and figures right-aligned."""
    table = Table(title=title, title_justify="left", show_header=any(columns), header_style="bold", box=None)
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place == 0 else "right", no_wrap=True)
    return table


def _number(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.1%}"

"""A replay's result on a terminal: every figure on 120 columns, the essential ones on 80."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mirage.replay.columns import COLUMNS, Column
from mirage.replay.metrics import ALL
from mirage.replay.wording import CLASS_MEANING, DEFINITIONS, describe_intervals

if TYPE_CHECKING:
    from mirage.replay.metrics import PolicyMetrics, ReplayMetrics

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


def _add_section(table: Table, rows: tuple[PolicyMetrics, ...], load: str, columns: tuple[Column, ...]) -> None:
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

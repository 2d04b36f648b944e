"""The report of a replay of tasks as one HTML file that needs nothing else: no scripts, both themes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.comparison import COLUMNS, change_of, describe, lines
from mirage.replay.html import open_report

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.comparing import FigureColumn
    from mirage.allocation.ddl.comparison import Line
    from mirage.allocation.ddl.outcome import TaskRunFigures
    from mirage.allocation.ddl.replay import Compared
    from mirage.replay.plots import PolicyStyle
    from mirage.replay.svg import Palette, Shade


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot with its title and caption."""

    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Everything the template prints."""

    title: str
    summary: str
    headlines: tuple[str, ...]
    columns: tuple[FigureColumn[TaskRunFigures], ...]
    rows: tuple[tuple[PolicyStyle, Line], ...]
    shades: tuple[Shade, ...]
    lanes: tuple[Picture, ...]
    distribution: Picture
    settings: tuple[tuple[str, str], ...]


def write_task_page(path: Path, compared: Compared) -> None:
    """Write the report to ``path``. Raises ``MissingExtra`` without jinja2 and matplotlib."""
    path.write_text(render_task_page(compared), encoding="utf-8")


def render_task_page(compared: Compared) -> str:
    """The report as text; the same replay gives the same bytes."""
    return open_report("tasks.html.j2").render(page=compose_task_page(compared))


def compose_task_page(compared: Compared) -> TaskPage:
    """Draw the plots and format the texts of a task replay."""
    from mirage.replay.plots import style_policies
    from mirage.replay.svg import choose_palette

    table = lines(compared)
    styles = style_policies([line.pair.name for line in table])
    palette = choose_palette(compared.trace.tasks)
    source = compared.replay.source
    return TaskPage(
        title=f"Tasks of {source.trace.rpartition('/')[2]} on {source.pool.rpartition('/')[2]}",
        summary=describe(compared),
        headlines=_headlines(table),
        columns=COLUMNS,
        rows=tuple(zip(styles, table, strict=True)),
        shades=palette.shades,
        lanes=_lanes(compared, table, palette),
        distribution=_distribution(compared, styles),
        settings=_settings(compared),
    )


def _headlines(table: tuple[Line, ...]) -> tuple[str, ...]:
    """The pair with the shortest mean completion time, and how it compares."""
    best = [line for line in table if line.cells[0].best]
    if len(table) < 2 or not best:
        only = table[0]
        return (f"{only.pair.name}: a task is done {only.cells[0].mean} s after submission on average.",)
    winner = best[0]
    against = f", {change_of(winner)} against {table[0].pair.name}" if winner.change else ""
    return (
        f"{winner.pair.name} has the shortest completion time on average: {winner.cells[0].mean} s{against}.",
        *_shortest_makespan(table),
    )


def _shortest_makespan(table: tuple[Line, ...]) -> tuple[str, ...]:
    column = next(i for i, column in enumerate(COLUMNS) if column.key == "makespan")
    names = [line.pair.name for line in table if line.cells[column].best]
    return (f"Shortest makespan: {', '.join(names)}.",) if names else ()


def _lanes(compared: Compared, table: tuple[Line, ...], palette: Palette) -> tuple[Picture, ...]:
    from mirage.replay.svg import MOST_LANES, draw_lanes

    last = max(float(np.nanmax(outcome.end)) for outcome in compared.shown)
    devices = len(compared.trace.pool.device_node)
    cut = f" The first {MOST_LANES} of {devices:,} devices." if devices > MOST_LANES else ""
    seed = f" Seed {compared.replay.seeds[0]}." if compared.replay.source.drawn else ""
    return tuple(
        Picture(
            line.pair.name,
            f"Mean completion time {outcome.figures.mean_jct:,.0f} s, makespan {outcome.figures.makespan:,.0f} s."
            f"{seed}{cut}",
            draw_lanes(outcome, palette, last, f"Devices over time under {line.pair.name}"),
        )
        for line, outcome in zip(table, compared.shown, strict=True)
    )


def _distribution(compared: Compared, styles: tuple[PolicyStyle, ...]) -> Picture:
    from mirage.replay.svg import blank, clock, drawing, write_svg

    values = [np.sort(outcome.jct[~np.isnan(outcome.jct)]) for outcome in compared.shown]
    medians = "; ".join(
        f"{style.policy} {clock(float(np.median(jct)))}" for style, jct in zip(styles, values, strict=True)
    )
    with drawing():
        figure, axes = blank(720, 320)
        for style, jct in zip(styles, values, strict=True):
            share = np.arange(1, len(jct) + 1) / len(jct)
            axes.step(jct, share, where="post", color=style.ink.light, linestyle=style.line, linewidth=1.6)
        axes.set_xscale("log")
        marks = [at for at in _MARKS if values[0].size and _low(values) <= at <= _high(values)]
        axes.set_xticks(marks, [clock(at) for at in marks])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 1.01)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_xlabel("job completion time")
        axes.grid()
        svg = write_svg(figure, "jct", f"Share of tasks done within a time. Medians: {medians}.")
    return Picture("How long tasks take", f"Share of the tasks done within a time. Medians: {medians}.", svg)


_MARKS = (1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0, 365 * 86400.0)


def _low(values: list[np.ndarray]) -> float:
    return min(float(jct[0]) for jct in values)


def _high(values: list[np.ndarray]) -> float:
    return max(float(jct[-1]) for jct in values)


def _settings(compared: Compared) -> tuple[tuple[str, str], ...]:
    replay, trace = compared.replay, compared.trace
    rules = replay.rules
    kinds = (f"{kind} at $ {price:g}" for kind, price in zip(trace.pool.kinds, trace.pool.price, strict=True))
    return (
        ("Trace", f"{replay.source.trace} ({replay.source.format})"),
        ("Pool", replay.source.pool),
        ("Devices, price per hour", ", ".join(kinds)),
        ("Speeds", replay.source.speeds or "the same wherever a task runs"),
        ("Preemption", "of tasks with a checkpoint" if rules.preempt else "none"),
        ("Moving running tasks", "to make room for others" if rules.preempt and rules.move else "none"),
        ("Skipping a task that does not fit", "not allowed" if rules.strict else "allowed"),
        (
            "Decisions",
            "at arrivals and ends" + (f", and every {rules.quantum:g} s" if np.isfinite(rules.quantum) else ""),
        ),
        ("Seeds", ", ".join(map(str, replay.seeds)) if replay.source.drawn else "none: a recorded trace"),
    )

"""The report's pictures: chains with their gaps, distributions of x, the queue, and what policies trade."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

from mirage.replay.results import ORACLE, REACTIVE, LoadClass
from mirage.replay.svg import (
    BASELINE,
    BUSY,
    FLOOR,
    HEAVY,
    INK,
    INTERRUPTION,
    LOW,
    MEDIUM,
    OVERLAP,
    POLICY_INKS,
    RULE,
    RUN,
    WAIT,
    Ink,
    blank,
    drawing,
    write_svg,
)
from mirage.replay.wording import CALENDAR_FROM, MINUS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from mirage.replay.intervals import Floats
    from mirage.replay.metrics import PolicyMetrics
    from mirage.replay.results import PairOutcome, Panel, QueueHistory

LETTER = 6.4
LINE = 15.0
MARK = 12.0
"""Width of a letter, height of a line, size of a mark: pixels, rounded up."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels, its origin at the lower left."""

    left: float
    bottom: float
    width: float
    height: float

    def meets(self, other: Box) -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.left + other.width
            and other.left < self.left + self.width
            and self.bottom < other.bottom + other.height
            and other.bottom < self.bottom + self.height
        )


def place_labels(points: Sequence[tuple[float, float]], names: Sequence[str]) -> list[tuple[float, float]]:
    """Offset in pixels of each name's lower left corner from its point (pixels, y upwards).

    Greedy: the first place around the mark that is free of marks and of the names already placed; above to
    the right where none is.
    """
    taken = [Box(x - MARK / 2, y - MARK / 2, MARK, MARK) for x, y in points]
    offsets = []
    for (x, y), name in zip(points, names, strict=True):
        width = LETTER * len(name)
        places = _places(width)
        boxes = [Box(x + dx, y + dy, width, LINE) for dx, dy in places]
        free = [i for i, box in enumerate(boxes) if not any(box.meets(other) for other in taken)]
        choice = free[0] if free else 0
        taken.append(boxes[choice])
        offsets.append(places[choice])
    return offsets


def _places(width: float) -> list[tuple[float, float]]:
    """Around the mark: right of it, then left of it, each above, below and level; then over and under it."""
    beside = [(dx, dy) for dx in (8.0, -8.0 - width) for dy in (4.0, -LINE - 2, -LINE / 2)]
    return [*beside, (-width / 2, 10.0), (-width / 2, -LINE - 10)]


DAY = 86_400
"""Days since 1970 are matplotlib's dates."""

LOAD_INKS = {LoadClass.LOW: LOW, LoadClass.MEDIUM: MEDIUM, LoadClass.HEAVY: HEAVY}
_DASHES = ("", "6 2", "2 2", "7 2 2 2")
_HOUR_TICKS = (1, 3, 12, 48, 168)
_MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True, slots=True)
class PolicyStyle:
    """Drawing style of a policy in every plot: its colour, dash and marker."""

    policy: str
    ink: Ink
    dash: str
    """SVG ``stroke-dasharray``; empty: solid."""
    marker: str
    """Matplotlib's letter."""

    @property
    def line(self) -> str | tuple[float, tuple[float, ...]]:
        """The dash as matplotlib takes it."""
        return (0, tuple(float(part) for part in self.dash.split())) if self.dash else "solid"


def style_policies(policies: Sequence[str]) -> tuple[PolicyStyle, ...]:
    """Styles in the order given; the reactive baseline and the oracle are neutral, whatever their place."""
    fixed = {
        REACTIVE: PolicyStyle(REACTIVE, BASELINE, "", "X"),
        ORACLE: PolicyStyle(ORACLE, FLOOR, "1 2", "*"),
    }
    compared = [name for name in policies if name not in fixed]
    inks = cycle(POLICY_INKS)
    styles = fixed | {
        name: PolicyStyle(
            name,
            next(inks),
            _DASHES[i // len(POLICY_INKS) % len(_DASHES)],
            _MARKERS[i % len(_MARKERS)],
        )
        for i, name in enumerate(compared)
    }
    return tuple(styles[name] for name in policies)


def plot_timeline(
    name: str, alt: str, styles: Sequence[PolicyStyle], chains: Sequence[Sequence[PairOutcome]]
) -> str:
    """One episode under every policy, one row each: links as bars, interruptions red, overlaps amber.

    ``chains[i]`` are the pairs of ``styles[i].policy`` in order. Hours count from the end of the first link.
    """
    zero = chains[0][0].predecessor_end
    left, right = _window(chains, zero)
    with drawing():
        figure, axes = blank(1040, 46 + 34 * len(chains))
        for row, chain in enumerate(chains):
            ends = [*((pair.predecessor_end - zero) / 3_600 for pair in chain[1:]), right]
            for pair, end in zip(chain, ends, strict=True):
                _draw_pair(axes, row, pair, zero, end)
        axes.axvline(0, color=INK.light, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
        axes.set_yticks(range(len(styles)), [style.policy for style in styles])
        axes.set_ylim(len(styles) - 0.45, -0.6)
        axes.set_xlim(left, right)
        axes.set_xlabel("hours from the end of the first link")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelcolor=INK.light)
        axes.grid(axis="x")
        return write_svg(figure, name, alt)


def _window(chains: Sequence[Sequence[PairOutcome]], zero: int) -> tuple[float, float]:
    """Hours to show: every handover with its submission, but no more of the first link than that needs."""
    pairs = [pair for chain in chains for pair in chain]
    first = min(min(pair.successor_submit, pair.successor_start) for pair in pairs)
    last = max(max(pair.successor_start, pair.predecessor_end) for pair in pairs)
    lead, tail = max(0, zero - first) / 3_600, max(0, last - zero) / 3_600
    margin = 0.12 * (lead + tail) + 1
    return -(lead + margin), tail + 2 * margin


def _draw_pair(axes: Axes, row: int, pair: PairOutcome, zero: int, last: float) -> None:
    """Predecessor in the upper half of the row, successor (until hour ``last``) in the lower one, interruption or
    overlap between them; every other pair upside down, so that a link keeps its half."""
    upper, lower = (row - 0.34, 0.3), (row + 0.04, 0.3)
    start, end = (pair.predecessor_start - zero) / 3_600, (pair.predecessor_end - zero) / 3_600
    submit, begin = (pair.successor_submit - zero) / 3_600, (pair.successor_start - zero) / 3_600
    if pair.pair % 2:
        upper, lower = lower, upper
    axes.broken_barh([(start, end - start)], upper, facecolor=RUN.light)
    axes.broken_barh([(begin, max(last, begin) - begin)], lower, facecolor=RUN.light)
    fault = INTERRUPTION if pair.x > 0 else OVERLAP
    axes.broken_barh([(min(end, begin), abs(begin - end))], (row - 0.34, 0.68), facecolor=fault.light, zorder=2)
    middle = lower[0] + lower[1] / 2
    axes.plot([submit, begin], [middle, middle], color=WAIT.light, linewidth=1, zorder=3)
    axes.plot([submit], [middle], marker="|", color=INK.light, markersize=7, zorder=4)
    axes.annotate(
        _signed(pair.x),
        (max(begin, end), upper[0] + upper[1] / 2),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=INK.light,
        zorder=5,
    )


def _signed(x: int) -> str:
    """Seconds as minutes or hours, with the sign that x has."""
    if abs(x) < 30:
        return "0 min"
    text = f"{x / 60:+.0f} min" if abs(x) < 3_570 else f"{x / 3_600:+.1f} h"
    return text.replace("-", MINUS)


def plot_distribution(name: str, alt: str, styles: Sequence[PolicyStyle], rows: Sequence[Floats]) -> str:
    """Cumulative share of pairs by signed x in hours; ``rows[i]`` are the values of ``styles[i]``."""
    with drawing():
        figure, axes = blank(510, 290)
        left, right = _span(np.concatenate(rows))
        axes.axvspan(left, 0, color=OVERLAP.light, alpha=0.09, linewidth=0)
        axes.axvspan(0, right, color=INTERRUPTION.light, alpha=0.07, linewidth=0)
        for style, x in zip(styles, rows, strict=True):
            steps = np.concatenate([[left], np.sort(x), [right]])
            share = np.concatenate([[0], np.arange(1, len(x) + 1) / len(x), [1]])
            axes.step(steps, share, where="post", color=style.ink.light, linestyle=style.line, linewidth=1.5)
        axes.set_ylim(0, 1.01)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        _scale_hours(axes, left, right)
        axes.set_xlabel("overlap \N{LEFTWARDS ARROW}  x, hours  \N{RIGHTWARDS ARROW} interruption")
        axes.grid()
        return write_svg(figure, name, alt)


def _span(values: Floats) -> tuple[float, float]:
    """An axis that holds all values, and an hour either side of zero."""
    return 1.15 * min(-1.0, float(values.min())), 1.15 * max(1.0, float(values.max()))


def _scale_hours(axes: Axes, left: float, right: float) -> None:
    """Linear within an hour of zero, logarithmic beyond: handovers are judged near zero, tails are long."""
    axes.set_xscale("symlog", linthresh=1, linscale=0.6)
    axes.set_xlim(left, right)
    sides = {sign * hours for hours in _HOUR_TICKS for sign in (-1, 1)}
    ticks = sorted(tick for tick in {0, *sides} if left <= tick <= right)
    axes.set_xticks(ticks, [f"{tick:d}".replace("-", MINUS) for tick in ticks])
    axes.set_xticks([], minor=True)


def plot_queue(name: str, alt: str, queue: QueueHistory, panel: Panel) -> str:
    """Nodes that pending jobs ask for and busy nodes over time; above them each episode's load class."""
    with drawing():
        figure, axes = blank(1040, 330)
        figure.delaxes(axes)
        strip, pending, busy = figure.subplots(3, 1, sharex=True, height_ratios=[0.11, 1, 0.8])
        time = queue.time / DAY
        pending.fill_between(
            time, queue.pending_nodes, step="post", color=POLICY_INKS[0].light, alpha=0.35, linewidth=0
        )
        pending.step(time, queue.pending_nodes, where="post", color=POLICY_INKS[0].light, linewidth=1)
        pending.set_ylabel("nodes asked for\nby pending jobs")
        busy.step(time, queue.busy_nodes, where="post", color=BUSY.light, linewidth=1)
        busy.set_ylabel("busy nodes")
        for axes in (pending, busy):
            axes.set_ylim(bottom=0)
            axes.grid()
        _draw_loads(strip, panel)
        _label_time(busy, int(queue.time[0]))
        return write_svg(figure, name, alt)


def _draw_loads(axes: Axes, panel: Panel) -> None:
    """A strip with one cell per episode in the colour of its load class."""
    spacing = float(np.median(np.diff(panel.starts))) if len(panel.starts) > 1 else DAY
    for start, load in zip(panel.starts.tolist(), panel.load, strict=False):
        axes.axvspan(start / DAY, (start + spacing) / DAY, color=LOAD_INKS[load].light, linewidth=0)
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("load", rotation=0, ha="right", va="center")


def _label_time(axes: Axes, first: int) -> None:
    """Dates on the axis where the trace has a calendar, else days."""
    if first <= CALENDAR_FROM:
        axes.set_xlabel("days from the start of the trace")
        return
    locator = AutoDateLocator(tz=UTC, minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


def plot_trade(name: str, alt: str, styles: Sequence[PolicyStyle], rows: Sequence[PolicyMetrics]) -> str:
    """Mean interruption against mean overlap, one mark per policy with intervals both ways."""
    width, height = 620, 380
    with drawing():
        figure, axes = blank(width, height)
        estimates = [estimate for row in rows for estimate in (row.overlap_mean, row.interruption_mean)]
        reach = 1.05 * max(0.5, *(e.high if e.bounded else e.value for e in estimates))
        for cost in np.linspace(0, 2 * reach, 9)[1:]:
            axes.plot([0, cost], [cost, 0], color=RULE.light, linewidth=0.7, zorder=0)
        means = [(row.overlap_mean.value, row.interruption_mean.value) for row in rows]
        scale = 0.85 * width / (1.1 * reach), 0.85 * height / (1.1 * reach)
        pixels = [(x * scale[0], y * scale[1]) for x, y in means]
        offsets = place_labels(pixels, [style.policy for style in styles])
        for style, row, offset in zip(styles, rows, offsets, strict=True):
            _draw_trade(axes, style, row, offset)
        axes.set_xlim(-0.02 * reach, 1.08 * reach)
        axes.set_ylim(-0.07 * reach, 1.03 * reach)
        axes.set_xlabel("mean overlap, hours")
        axes.set_ylabel("mean interruption, hours")
        return write_svg(figure, name, alt)


def _draw_trade(axes: Axes, style: PolicyStyle, row: PolicyMetrics, offset: tuple[float, float]) -> None:
    """A mark with its intervals, and the policy's name ``offset`` pixels from it."""
    x, y = row.overlap_mean, row.interruption_mean
    if x.bounded and y.bounded:
        axes.plot([x.low, x.high], [y.value, y.value], color=style.ink.light, linewidth=1, alpha=0.55)
        axes.plot([x.value, x.value], [y.low, y.high], color=style.ink.light, linewidth=1, alpha=0.55)
    axes.plot([x.value], [y.value], marker=style.marker, color=style.ink.light, markersize=8, linestyle="none")
    points = (0.75 * offset[0], 0.75 * offset[1] + 2)
    axes.annotate(style.policy, (x.value, y.value), xytext=points, textcoords="offset points", color=INK.light)

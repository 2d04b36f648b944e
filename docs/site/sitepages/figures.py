"""The evaluation's plots, drawn from the tables of docs/benchmarks while the site is built."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirage.replay.svg import (
    BASELINE,
    FLOOR,
    INKS,
    INTERRUPTION,
    OVERLAP,
    POLICY_INKS,
    RULE,
    blank,
    drawing,
    write_svg,
)
from sitepages.benchmarktables import Measured, NoSuchTable, Table, finite, table_below

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from mirage.replay.svg import Ink

WIDTH = 760
_ROW, _MARGIN = 25, 70
"""Pixels: of a row of bars, and of what stands around them."""
_SETTINGS = ("76 nodes, links of 1", "76 nodes, links of 8", "72 nodes, links of 1", "72 nodes, links of 8")
_COMPARED = {
    "reactive": "submit when the job has ended",
    "quantile": "quantile: past waits of similar jobs",
    "xgboost": "xgboost: trained on past queues",
    "lookahead": "lookahead: simulates the queue",
}
"""Methods of the comparison that is shown first: label in the chart by label in the table."""
_PINNED = "pin: the default (auto)"
_PLACE = re.compile(r"^<!-- figure: ([\w-]+) -->$", re.MULTILINE)


def with_figures(markdown: str, text: str) -> str:
    """The text with a figure wherever a comment such as ``<!-- figure: methods-76-1 -->`` names one.

    Raises ``KeyError`` for an unknown figure, ``NoSuchTable`` where the benchmarks have changed.
    """

    def drawn(place: re.Match[str]) -> str:
        return f'<figure class="plot" markdown="0">{FIGURES[place[1]](text)}</figure>'

    return _PLACE.sub(drawn, markdown)


def stylesheet() -> str:
    """Colours of the figures in the site's light and dark schemes."""
    light = "".join(f"--{ink.name}: {ink.light}; " for ink in INKS)
    dark = "".join(f"--{ink.name}: {ink.dark}; " for ink in INKS)
    return (
        f":root {{ {light}}}\n"
        f'[data-md-color-scheme="slate"] {{ {dark}}}\n'
        f".md-typeset figure.plot {{ display: block; width: 100%; max-width: {WIDTH}px; }}\n"
        ".plot svg { width: 100%; height: auto; }\n"
    )


def _methods(setting: str) -> Callable[[str], str]:
    def draw(text: str) -> str:
        table = table_below(text, f"**{setting}**")
        alt = f"{setting}: mean interruption and overlap of each method in hours, and the interval of their sum"
        return _lost_and_paid(table, f"methods-{setting}", alt, whole="mean |x|")

    return draw


def _lost_and_paid(table: Table, name: str, alt: str, whole: str) -> str:
    """Bars of interruption and overlap; a line for the interval of the mean of their sum."""
    sums = finite(table.column(whole))
    with drawing():
        figure, axes = blank(WIDTH, _MARGIN + _ROW * len(table.rows))
        _bars(axes, finite(table.column("interruption")), finite(table.column("overlap")))
        for row, each in enumerate(sums):
            axes.plot((each.low, each.high), (row, row), color=FLOOR.light, linewidth=1.3)
        axes.plot([], [], color=FLOOR.light, linewidth=1.3, label="95 % interval of the sum")
        _finish_rows(axes, table.labels, "hours a handover, mean")
        axes.legend(frameon=False, loc="best")
        return write_svg(figure, re.sub(r"\W+", "-", name), alt)


def _gaps(text: str) -> str:
    """How much of the way from reactive to the oracle each method goes, in all four settings."""
    tables = {setting: table_below(text, f"**{setting}**") for setting in _SETTINGS}
    methods = [name for name in _names(tables[_SETTINGS[0]]) if name not in ("reactive", "oracle")]
    with drawing():
        figure, axes = blank(WIDTH, _MARGIN + 40 * len(methods))
        for place, (setting, table) in enumerate(tables.items()):
            closed = dict(zip(_names(table), table.column("gap closed"), strict=True))
            offset = (place - 1.5) * 0.17
            _points(axes, [closed[method] for method in methods], offset, POLICY_INKS[place], setting)
        _finish_rows(
            axes, methods, "share of the way from reactive (0) to the oracle (100), %, with 95 % intervals"
        )
        axes.set_xlim(-110, 102)
        axes.axvline(0, color=RULE.light, linewidth=0.8)
        axes.legend(frameon=False, loc="center left")
        alt = "Share of the gap between reactive submission and the oracle that each method closes, in percent"
        return write_svg(figure, "gaps", alt)


def _names(table: Table) -> list[str]:
    """Methods, without how they were played."""
    return [label.split(",")[0] for label in table.labels]


def _steering(text: str) -> str:
    """Interruption and overlap of links that aged while they were held."""
    table = table_below(text, "In the replay below (LS6, February 2023")
    table = Table(table.columns, tuple(each for row in table.rows for each in _alternatives(row)))
    alt = "Mean interruption and overlap of steered links of one node in hours"
    lost, paid = finite(table.column("interruption, 1 node")), finite(table.column("overlap"))
    with drawing():
        figure, axes = blank(WIDTH, _MARGIN + _ROW * len(table.rows))
        _bars(axes, lost, paid)
        _finish_rows(axes, table.labels, "hours a handover, mean")
        axes.legend(frameon=False)
        return write_svg(figure, "steering", alt)


def _handovers(text: str) -> str:
    """Interruption and overlap of five methods, simple ones first; the links have one node."""
    compared = table_below(text, f"**{_SETTINGS[0]}**")
    pinned = table_below(text, "In the replay below (LS6, February 2023")
    lost = [_of_row(compared, label, "interruption") for label in _COMPARED]
    paid = [_of_row(compared, label, "overlap") for label in _COMPARED]
    sums = [_of_row(compared, label, "mean |x|") for label in _COMPARED]
    lost.append(_of_row(pinned, "pin", "interruption, 1 node"))
    paid.append(_of_row(pinned, "pin", "overlap"))
    sums.append(lost[-1])
    if paid[-1].value:
        raise NoSuchTable("pin has an overlap now: the sum needs a separate interval")
    with drawing():
        figure, axes = blank(WIDTH, _MARGIN + 34 * len(sums))
        _bars(axes, lost, paid)
        for row, each in enumerate(sums):
            axes.plot((each.low, each.high), (row, row), color=FLOOR.light, linewidth=1.3)
            axes.text(each.high + 0.15, row, f"{each.value:.3g} h", va="center", fontsize=11)
        axes.plot([], [], color=FLOOR.light, linewidth=1.3, label="95 % interval of the sum")
        _finish_rows(axes, [*_COMPARED.values(), _PINNED], "hours per handover, mean")
        axes.legend(frameon=False, loc="lower right")
        alt = "Mean interruption and overlap per handover in hours, by method: the default has the smallest"
        return write_svg(figure, "handovers", alt)


def _of_row(table: Table, label: str, column: str) -> Measured:
    """The figure of the row whose first cell begins with ``label``. Raises ``NoSuchTable``."""
    rows = [row for row, each in enumerate(_names(table)) if each == label]
    if not rows:
        raise NoSuchTable(f"no row is named {label!r}: {', '.join(table.labels)}")
    return finite([table.column(column)[rows[0]]])[0]


def _alternatives(row: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Split a row whose label names two cases into two; a cell with two values belongs to both."""
    if " / " not in row[0]:
        return [row]
    parts = [cell.split(" / ") for cell in row]
    return [tuple(part[min(case, len(part) - 1)] for part in parts) for case in (0, 1)]


def _bars(axes: Axes, lost: Sequence[Measured], paid: Sequence[Measured]) -> None:
    """Interruption and overlap of each row, one on the other."""
    rows, gaps = range(len(lost)), [each.value for each in lost]
    axes.barh(rows, gaps, 0.62, color=INTERRUPTION.light, label="interruption: nothing runs")
    doubled = [each.value for each in paid]
    axes.barh(rows, doubled, 0.62, left=gaps, color=OVERLAP.light, label="overlap: two run")


def _planner(text: str) -> str:
    """What a wrong idea of the cluster costs the look-ahead."""
    table = table_below(text, "## A planner that is wrong")
    with drawing():
        figure, axes = blank(WIDTH, _MARGIN + 32 * len(table.rows))
        for place, name in enumerate(("links of 1", "links of 8")):
            _points(axes, table.column(name), (place - 0.5) * 0.25, POLICY_INKS[place], name)
        _finish_rows(axes, table.labels, "gap closed, %, with 95 % intervals (17 handovers)")
        axes.set_xlim(0, 102)
        axes.legend(frameon=False, loc="center left")
        return write_svg(
            figure, "planner", "Gap closed by the look-ahead under wrong ideas of the cluster, in percent"
        )


def _recorded(text: str) -> str:
    """Mean pinball loss on waits that clusters recorded."""
    table = table_below(text, "Waits that real clusters *recorded*")
    with drawing():
        figure, axes = blank(WIDTH, _MARGIN + 36 * len(table.rows))
        inks = (BASELINE, POLICY_INKS[0], POLICY_INKS[2], POLICY_INKS[1])
        for place, (method, ink) in enumerate(zip(table.columns[3:], inks, strict=True)):
            losses = [_pinball(row[3 + place]) for row in table.rows]
            _points(axes, losses, (place - 1.5) * 0.17, ink, method)
        _finish_rows(
            axes, [f"{row[0]} ({row[1]} jobs)" for row in table.rows], "mean pinball loss, hours (less is better)"
        )
        axes.set_xscale("log")
        axes.set_xticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
        axes.minorticks_off()
        axes.legend(frameon=False)
        return write_svg(figure, "recorded", "Mean pinball loss of forecasts of recorded waits, in hours")


def _pinball(cell: str) -> Measured | None:
    """The second of ``median error / pinball loss``."""
    return Measured.read(cell.partition("/")[2])


def _points(axes: Axes, found: Sequence[Measured | None], offset: float, ink: Ink, label: str) -> None:
    """A mark for each figure, with a line for its interval; ``offset`` in rows."""
    for row, each in enumerate(found):
        if each is not None:
            axes.plot((each.low, each.high), [row + offset] * 2, color=ink.light, linewidth=1.4)
            axes.plot(each.value, row + offset, "o", color=ink.light, markersize=4.5)
    axes.plot([], [], "o-", color=ink.light, markersize=4.5, linewidth=1.4, label=label)


def _finish_rows(axes: Axes, labels: Sequence[str], along: str) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlabel(along)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


FIGURES: dict[str, Callable[[str], str]] = {
    "handovers": _handovers,
    "methods-76-1": _methods("76 nodes, links of 1"),
    "methods-76-8": _methods("76 nodes, links of 8"),
    "methods-72-1": _methods("72 nodes, links of 1"),
    "methods-72-8": _methods("72 nodes, links of 8"),
    "gaps": _gaps,
    "steering": _steering,
    "planner": _planner,
    "recorded": _recorded,
}
"""Figures by the name that a document uses; each takes the text of the benchmark pages."""

"""Drawings as SVG fragments that take their colours from the page they stand in.

Matplotlib's figures, and devices over time: a lane for each device, tasks as bars. A figure is drawn in the
light colours below; on the way out each becomes a CSS variable, so that the same fragment follows the reader's
light or dark theme. Nothing of matplotlib's global state is changed for good: figures are made without pyplot
and the settings hold only while one is drawn.
"""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from mirage.allocation.ddl.outcome import TaskRunResult
    from mirage.domain.pool import Pool, TaskTable


@dataclass(frozen=True, slots=True)
class Ink:
    """A colour by its role: drawn as ``light``, shown as the CSS variable of the same name."""

    name: str
    light: str
    dark: str


INK = Ink("ink", "#1b1f24", "#e6e9ed")
MUTED = Ink("muted", "#59636e", "#9aa4b0")
RULE = Ink("rule", "#d8dde3", "#343b44")
PAPER = Ink("paper", "#fefefe", "#15181c")
RUN = Ink("run", "#9db2c9", "#4d647d")
WAIT = Ink("wait", "#7f8a96", "#7e8895")
INTERRUPTION = Ink("interruption", "#c2303a", "#f0646c")
OVERLAP = Ink("overlap", "#e2a41c", "#e9b949")
LOW = Ink("low", "#dbeaf3", "#1d3342")
MEDIUM = Ink("medium", "#8dbbd6", "#3a6d8c")
HEAVY = Ink("heavy", "#2c6f97", "#86c5ea")
BUSY = Ink("busy", "#3f7f74", "#5fb3a4")

# Okabe and Ito's colours for the colour-blind (Color Universal Design, 2008), yellow darkened to be readable
# on white; the baseline and the floor are neutral, so that colour goes to what is being compared.
BASELINE = Ink("policy-baseline", "#6d7782", "#a4adb8")
FLOOR = Ink("policy-floor", "#23282e", "#d5dae0")
POLICY_INKS = (
    Ink("policy-1", "#0072b2", "#56a9e0"),
    Ink("policy-2", "#d55e00", "#f08a45"),
    Ink("policy-3", "#009e73", "#2fc79c"),
    Ink("policy-4", "#cc79a7", "#e29cc3"),
    Ink("policy-5", "#56b4e9", "#8fd0f5"),
    Ink("policy-6", "#b58a00", "#d8b84a"),
)
INKS = (
    *(INK, MUTED, RULE, PAPER, RUN, WAIT, INTERRUPTION, OVERLAP, LOW, MEDIUM, HEAVY, BUSY, BASELINE, FLOOR),
    *POLICY_INKS,
)

_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mirage",
    "text.parse_math": False,
    "font.size": 9.5,
    "axes.edgecolor": MUTED.light,
    "axes.labelcolor": MUTED.light,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": RULE.light,
    "grid.linewidth": 0.6,
    "text.color": INK.light,
    "xtick.color": MUTED.light,
    "ytick.color": MUTED.light,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
}


def drawing() -> AbstractContextManager[None]:
    """The settings under which figures are drawn and written, whatever the user's matplotlibrc says."""
    return style.context(["default", _SETTINGS])


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure in CSS pixels (at the size where its text is as large as the page's)."""
    figure = Figure(figsize=(width / 96, height / 96), layout="constrained")
    return figure, figure.subplots()


def write_svg(figure: Figure, name: str, alt: str) -> str:
    """The figure as one ``<svg>`` element; ``name`` keeps its ids apart from those of other figures."""
    text = io.StringIO()
    with warnings.catch_warnings():
        # the browser uses other fonts; matplotlib's only measure text
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    body = re.search(r"<svg\b[^>]*viewBox=\"([^\"]*)\"[^>]*>(.*)</svg>", text.getvalue(), re.DOTALL)
    assert body, "matplotlib writes one svg element"
    inner = re.sub(r"<metadata>.*?</metadata>", "", body[2], flags=re.DOTALL)
    inner = _themed(_isolated(inner, name))
    return f'<svg viewBox="{body[1]}" role="img" aria-label="{escape(alt)}">{inner}</svg>'


def _isolated(svg: str, name: str) -> str:
    """Ids that no other figure of the page has, and links written as HTML writes them."""
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    return re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', svg)


def _themed(svg: str) -> str:
    """Role colours become CSS variables, and text takes the page's font."""
    for ink in INKS:
        # Only within attributes: a label may read like a colour.
        svg = re.sub(rf'(?<=[:"]){ink.light}|(?<=: ){ink.light}(?=[;"])', f"var(--{ink.name})", svg)
    return re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)


MOST_LANES = 256
"""Devices drawn; of more, the first."""

_WIDTH, _LEFT, _TOP, _BOTTOM = 1100.0, 64.0, 4.0, 22.0
_HEIGHT = 520.0
"""Of all lanes, as far as each is neither thinner nor thicker than is good to read."""
_THINNEST, _THICKEST = 3.0, 14.0
_NODE_GAP = 3.0
_SPECK = 0.6
"""Bars narrower than this are drawn together: thousands of them would say no more."""
_LETTER = 6.0
_PALER = 0.5
_INKS = (*POLICY_INKS, BASELINE, FLOOR)
_LIGHT_INKS = POLICY_INKS[3:5]
"""Those on which dark letters are readable in both themes."""


@dataclass(frozen=True, slots=True)
class Shade:
    """How the tasks of a class are drawn."""

    label: str
    ink: Ink
    opacity: float


@dataclass(frozen=True, slots=True)
class Palette:
    """Shades by class of task: by model where models are known, else by size."""

    shades: tuple[Shade, ...]
    of_task: NDArray[np.int64]
    """[T] Row of ``shades``."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where lanes and times are on the picture."""

    lane_top: NDArray[np.float64]
    thick: float
    begin: float
    scale: float
    """Units for one second."""

    def x(self, time: float) -> float:
        return _LEFT + (time - self.begin) * self.scale

    @property
    def bottom(self) -> float:
        return float(self.lane_top[-1]) + self.thick


def choose_palette(tasks: TaskTable) -> Palette:
    """One for all pictures of the same tasks; where the inks do not suffice, the first come again, paler."""
    named = (tasks.model.codes >= 0).any()
    labels = tasks.model.decode() if named else [_size_class(count) for count in tasks.devices.tolist()]
    order = sorted(set(labels)) if named else [name for name in _SIZES if name in set(labels)]
    shades = tuple(
        Shade(label or "no model", _INKS[i % len(_INKS)], _PALER ** (i // len(_INKS)))
        for i, label in enumerate(order)
    )
    return Palette(shades, np.array([order.index(label) for label in labels]))


_SIZES = ("no device", "1 device", "2 to 4 devices", "5 to 8 devices", "more than 8 devices")


def _size_class(devices: int) -> str:
    return _SIZES[int(np.searchsorted([0, 1, 4, 8], devices))]


def draw_lanes(outcome: TaskRunResult, palette: Palette, last: float, alt: str) -> str:
    """One ``<svg>``. ``last``: the time at the right edge, so that pictures of several runs have one scale."""
    frame = _frame(outcome.pool, float(outcome.tasks.submit.min()), last)
    drawn = _drawn(outcome, frame)
    height = frame.bottom + _BOTTOM
    parts = [*_nodes(outcome.pool, frame), *_axis(frame, last), *_specks(outcome, frame, ~drawn)]
    parts += _bars(outcome, palette, frame, drawn)
    inner = "".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(alt)}">{inner}</svg>'


def _frame(pool: Pool, begin: float, last: float) -> _Frame:
    lanes = min(len(pool.device_node), MOST_LANES)
    thick = min(max(_HEIGHT / lanes, _THINNEST), _THICKEST)
    top = _TOP + np.arange(lanes) * thick + pool.device_node[:lanes] * _NODE_GAP
    return _Frame(top, thick, begin, (_WIDTH - _LEFT - 6) / max(last - begin, 1e-9))


def _drawn(outcome: TaskRunResult, frame: _Frame) -> NDArray[np.bool_]:
    """Which segments are wide enough for separate bars."""
    wide = (outcome.segments.end - outcome.segments.start) * frame.scale >= _SPECK
    return np.asarray(wide & (outcome.segments.device < len(frame.lane_top)))


def _bars(outcome: TaskRunResult, palette: Palette, frame: _Frame, drawn: NDArray[np.bool_]) -> list[str]:
    """Neighbouring devices of one gang are one bar."""
    log, node = outcome.segments, outcome.pool.device_node
    rows = np.flatnonzero(drawn)
    if not len(rows):
        return []
    rows = rows[np.lexsort((log.device[rows], log.start[rows], log.task[rows]))]
    task, device, start = log.task[rows], log.device[rows], log.start[rows]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (np.diff(task) != 0) | (np.diff(start) != 0) | (np.diff(device) != 1) | (np.diff(node[device]) != 0)
    heads = np.flatnonzero(new)
    tails = np.append(heads[1:], len(rows)) - 1
    return [
        _bar(outcome, palette, frame, int(rows[head]), int(device[tail]))
        for head, tail in zip(heads, tails, strict=True)
    ]


def _bar(outcome: TaskRunResult, palette: Palette, frame: _Frame, row: int, last_device: int) -> str:
    log, tasks = outcome.segments, outcome.tasks
    task = int(log.task[row])
    shade = palette.shades[palette.of_task[task]]
    x, top = frame.x(float(log.start[row])), float(frame.lane_top[int(log.device[row])])
    width = (float(log.end[row]) - float(log.start[row])) * frame.scale
    height = float(frame.lane_top[last_device]) + frame.thick - top
    edge = ' stroke="var(--paper)" stroke-width=".6"' if width > 2 else ""
    paler = f' fill-opacity="{shade.opacity:.2f}"' if shade.opacity < 1 else ""
    bar = (
        f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="var(--{shade.ink.name})"{paler}{edge}><title>{escape(_told(outcome, task, row))}</title></rect>'
    )
    if width < _LETTER * len(tasks.name[task]) + 4 or height < 9:
        return bar
    middle = top + height / 2 + 3.5
    kind = "task dark" if shade.opacity < 1 or shade.ink in _LIGHT_INKS else "task"
    return f'{bar}<text class="{kind}" x="{x + 3:.1f}" y="{middle:.1f}">{escape(tasks.name[task])}</text>'


def _told(outcome: TaskRunResult, task: int, row: int) -> str:
    tasks, log = outcome.tasks, outcome.segments
    model = f", {tasks.model[task]}" if tasks.model[task] else ""
    begin = float(tasks.submit.min())
    start, end = (clock(float(instant) - begin) for instant in (log.start[row], log.end[row]))
    return f"{tasks.name[task]}{model}, {int(tasks.devices[task])} devices: {start} to {end}"


def _specks(outcome: TaskRunResult, frame: _Frame, left: NDArray[np.bool_]) -> list[str]:
    """The short ones, those near to each other on a lane as one bar."""
    log = outcome.segments
    rows = np.flatnonzero(left & (log.device < len(frame.lane_top)))
    rows = rows[np.lexsort((log.start[rows], log.device[rows]))]
    if not len(rows):
        return []
    apart = np.ones(len(rows), dtype=bool)
    apart[1:] = (np.diff(log.device[rows]) != 0) | (
        (log.start[rows][1:] - log.end[rows][:-1]) * frame.scale > _SPECK
    )
    heads = np.flatnonzero(apart)
    tails = np.append(heads[1:], len(rows)) - 1
    strokes = "".join(
        f"M{frame.x(float(log.start[rows[head]])):.1f} {_middle(frame, int(log.device[rows[head]])):.1f}"
        f"h{max((float(log.end[rows[tail]]) - float(log.start[rows[head]])) * frame.scale, 0.2):.1f}"
        for head, tail in zip(heads, tails, strict=True)
    )
    return [f'<path d="{strokes}" stroke="var(--run)" stroke-width="{frame.thick:.1f}" fill="none"/>']


def _middle(frame: _Frame, device: int) -> float:
    return float(frame.lane_top[device]) + frame.thick / 2


def _nodes(pool: Pool, frame: _Frame) -> list[str]:
    """A pale band and a name for each node."""
    parts = []
    lanes = pool.device_node[: len(frame.lane_top)]
    for node in np.unique(lanes).tolist():
        tops = frame.lane_top[lanes == node]
        height = float(tops[-1] - tops[0]) + frame.thick
        parts.append(
            f'<rect x="{_LEFT:.0f}" y="{tops[0]:.1f}" width="{_WIDTH - _LEFT - 6:.0f}" height="{height:.1f}" '
            'fill="var(--rule)" fill-opacity=".45"/>'
        )
        if height >= 9:
            y = float(tops[0]) + height / 2 + 3.5
            name = escape(pool.node_names[node])
            parts.append(f'<text class="lane" x="{_LEFT - 6:.0f}" y="{y:.1f}">{name}</text>')
    return parts


def _axis(frame: _Frame, last: float) -> list[str]:
    bottom = frame.bottom + 3
    parts = []
    for tick in ticks(last - frame.begin):
        x = _LEFT + tick * frame.scale
        parts.append(
            f'<path d="M{x:.1f} {_TOP}V{bottom:.1f}" stroke="var(--rule)" stroke-width=".7"/>'
            f'<text class="tick" x="{x:.1f}" y="{bottom + 13:.1f}">{clock(tick)}</text>'
        )
    return parts


def ticks(span: float) -> list[float]:
    """Some six to ten round times from 0 to ``span`` (s)."""
    steps: list[float] = [digit * 10.0**power for power in range(-4, 0) for digit in (1, 2, 5)]
    steps += [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200]
    steps += [86400 * days for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)]
    step = next((step for step in steps if span / step <= 10), steps[-1] * 10)
    return [float(step * count) for count in range(int(span // step) + 1)]


def clock(seconds: float) -> str:
    """``0``, ``15 ms``, ``40 s``, ``5 min``, ``2.5 h``, ``12 d``: to three digits in the unit that suits."""
    for unit, size, least in (("d", 86400.0, 3 * 86400.0), ("h", 3600.0, 3600.0), ("min", 60.0, 60.0)):
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:.0f} {unit}"
    if 0.0 < seconds < 1.0:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds else "0"

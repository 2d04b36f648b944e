"""Matplotlib figures as SVG fragments that take their colours from the page they stand in.

A figure is drawn in the light colours below; on the way out each becomes a CSS variable, so that the same
fragment follows the reader's light or dark theme. Nothing of matplotlib's global state is changed for good:
figures are made without pyplot and the settings hold only while one is drawn.
"""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from matplotlib import style
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from matplotlib.axes import Axes


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

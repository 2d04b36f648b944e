"""Plots show the figures of the benchmarks' tables, in the reader's colours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from sitepages.benchmarktables import Measured, NoSuchTable, benchmark_text, table_below
from sitepages.figures import FIGURES, stylesheet, with_figures

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """
**a place**

| method | mean \\|x\\|, h | within 30 min |
|---|---|---|
| `reactive` | 8.28 (4.85\N{EN DASH}12.6) | 16 % |
| **pin** | **1,095** | \N{MINUS SIGN}41 % (\N{MINUS SIGN}111 to 5) |
| other |  | |
"""

ROWS = {
    "handovers": "pin: the default (auto)",
    "planner": "5 % more nodes",
    "recorded": "Curie (3,000 jobs)",
    "steering": "pin",
}
"""A row of each figure; of all others one is ``dqn``."""


def test_figures_are_read_as_they_are_written() -> None:
    table = table_below(PAGE, "**a place**")
    assert table.columns == ("method", "mean |x|, h", "within 30 min")
    assert table.labels == ["reactive", "pin", "other"]
    assert table.column("mean") == [Measured(8.28, 4.85, 12.6), Measured(1095, 1095, 1095), None]
    assert table.column("within") == [Measured(16, 16, 16), Measured(-41, -111, 5), None]


def test_a_table_that_is_gone_is_named() -> None:
    with pytest.raises(NoSuchTable, match="another place"):
        table_below(PAGE, "another place")
    with pytest.raises(NoSuchTable, match=r"seeds.*within"):
        table_below(PAGE, "**a place**").column("seeds")


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_has_its_rows_its_units_and_no_colour_of_its_own(root: Path, name: str) -> None:
    svg = FIGURES[name](benchmark_text(root))
    texts = [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]
    assert any("hours" in text or "%" in text for text in texts)
    assert ROWS.get(name, "dqn") in texts
    assert re.findall(r"(?:fill|stroke): #\w+", svg) == []
    assert set(re.findall(r"var\((--[\w-]+)\)", svg)) <= set(re.findall(r"(--[\w-]+):", stylesheet()))


def test_a_figure_that_nobody_draws_is_an_error() -> None:
    assert with_figures("no figure", "") == "no figure"
    with pytest.raises(KeyError, match="no-such"):
        with_figures("<!-- figure: no-such -->", "")


def test_every_figure_is_shown_somewhere(root: Path) -> None:
    assert set(re.findall(r"<!-- figure: (.*) -->", (root / "docs/method.md").read_text())) == set(FIGURES)

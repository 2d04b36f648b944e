"""Charts of the README are made from the benchmarks' tables, and the README shows them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from charts import CHARTS, SCHEMES, chart
from sitepages.benchmarktables import NoSuchTable, benchmark_text, table_below

from mirage.replay.svg import INK, INTERRUPTION, PAPER

if TYPE_CHECKING:
    from pathlib import Path

FILES = [(name, scheme) for name in CHARTS for scheme in SCHEMES]
"""Chart and colour scheme of each file in docs/charts."""


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


def lengths_of_bars(svg: str, scheme: str) -> list[float]:
    """Lengths of the interruptions' bars as shares of the longest."""
    colour = INTERRUPTION.dark if scheme == "dark" else INTERRUPTION.light
    paths = [each.get("d", "") for each in ET.fromstring(svg).iter() if f"fill: {colour}" in each.get("style", "")]
    places = [[float(x) for x in re.findall(r"[ML] (-?[\d.]+) ", path)] for path in paths]
    found = [max(each) - min(each) for each in places]
    return [each / max(found) for each in found]


@pytest.mark.parametrize(("name", "scheme"), FILES)
def test_committed_chart_is_that_of_the_tables(root: Path, name: str, scheme: str) -> None:
    kept = (root / f"docs/charts/{name}-{scheme}.svg").read_text()
    made = chart(name, scheme, benchmark_text(root))
    assert texts(kept) == texts(made), "run make charts"
    assert lengths_of_bars(kept, scheme) == pytest.approx(lengths_of_bars(made, scheme), abs=0.01)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_handover_chart_shows_each_figure_of_its_rows(root: Path, scheme: str) -> None:
    kept = (root / f"docs/charts/handovers-{scheme}.svg").read_text()
    text = benchmark_text(root)
    compared = table_below(text, "**76 nodes, links of 1**")
    rows = [compared.labels.index(label) for label in ("reactive", "quantile", "xgboost", "lookahead, each third")]
    pinned = table_below(text, "In the replay below")
    pin = pinned.column("interruption, 1 node")[pinned.labels.index("pin")]
    shown = [compared.column("mean |x|")[row] for row in rows] + [pin]
    assert [text for text in texts(kept) if text.endswith(" h")] == [f"{each.value:.3g} h" for each in shown]
    lost = [compared.column("interruption")[row].value for row in rows] + [pin.value]
    bars = lengths_of_bars(kept, scheme)[: len(lost)]
    assert bars == pytest.approx([each / max(lost) for each in lost], abs=0.01)


@pytest.mark.parametrize(("name", "scheme"), FILES)
def test_chart_stands_alone(root: Path, name: str, scheme: str) -> None:
    kept = (root / f"docs/charts/{name}-{scheme}.svg").read_text()
    assert ET.fromstring(kept).tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in kept
    ink, paper = (INK.dark, PAPER.dark) if scheme == "dark" else (INK.light, PAPER.light)
    assert ink in kept
    assert paper in kept


def test_chart_of_a_missing_row_is_an_error(root: Path) -> None:
    text = benchmark_text(root).replace("| `xgboost` |", "| `other` |")
    with pytest.raises(NoSuchTable, match="xgboost"):
        chart("handovers", "light", text)

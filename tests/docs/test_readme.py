"""The README is short, shows what Mirage does, and names its pictures by paths of the checkout."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from charts import CHARTS, SCHEMES
from sitepages.benchmarktables import benchmark_text, table_below

if TYPE_CHECKING:
    from pathlib import Path

PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"")


@pytest.fixture
def readme(root: Path) -> str:
    return (root / "README.md").read_text()


def test_readme_is_short(readme: str) -> None:
    assert len(readme.splitlines()) <= 220
    assert len(readme.split()) <= 1800
    assert len(re.findall(r"^\|(?:-+\|)+$", readme, re.MULTILINE)) <= 4


def test_readme_shows_chart_and_picture_first(root: Path, readme: str) -> None:
    first = "\n".join(readme.splitlines()[:40])
    shown = {one or other for one, other in PICTURE.findall(first)}
    assert {f"docs/charts/{name}-{scheme}.svg" for name in CHARTS for scheme in SCHEMES} <= shown
    assert any(path.endswith(".png") for path in shown)


def test_readme_pictures_are_files_of_the_checkout(root: Path, readme: str) -> None:
    pictures = [one or other for one, other in PICTURE.findall(readme)]
    assert [path for path in pictures if not (root / path).is_file()] == []


def test_readme_quotes_the_benchmarks(root: Path, readme: str) -> None:
    """Rows of methods are those of the two tables with 76 nodes; the last is that of early submission."""
    text = benchmark_text(root)
    quoted = table_below(readme, "## How good it is")
    one, eight = (table_below(text, f"**76 nodes, links of {nodes}**") for nodes in (1, 8))
    pinned = table_below(text, "In the replay below")
    cells = {
        label.split(",")[0]: (row_of_one[1], row_of_eight[1])
        for label, row_of_one, row_of_eight in zip(one.labels, one.rows, eight.rows, strict=True)
    }
    cells["pin"] = next((row[1], row[4]) for row in pinned.rows if row[0] == "pin")
    names = ["reactive", "quantile", "xgboost", "lookahead", "pin"]
    assert [label.partition(":")[0] for label in quoted.labels[1:]] == names[1:]
    assert [row[1:] for row in quoted.rows] == [cells[name] for name in names]


def test_repository_address_is_only_in_pyproject(root: Path) -> None:
    with (root / "pyproject.toml").open("rb") as file:
        address = tomllib.load(file)["project"]["urls"]["Source"]
    pages = [*root.glob("*.md"), root / "mkdocs.yml", *(root / "docs").rglob("*.md")]
    assert [page.name for page in pages if address in page.read_text()] == []

"""A new page needs one line in the navigation; the test names the missing line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mkdocs.config import load_config
from sitepages.documents import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def named(nav: object) -> Iterator[str]:
    """Pages of a navigation, whatever is nested in what."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from named(each)


def navigation(root: Path) -> list[str]:
    return list(named(load_config(str(root / "mkdocs.yml")).nav))


def test_every_page_is_in_the_navigation(root: Path) -> None:
    docs = root / "docs"
    written = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} | set(OUTSIDE.values())
    missing = sorted(written - set(navigation(root)))
    assert missing == [], (
        f"mkdocs.yml: nav has no line for {', '.join(missing)}; add one, such as `- Title: {missing[0]}`"
    )


def test_no_line_of_the_navigation_is_there_twice_or_leads_nowhere(root: Path) -> None:
    pages = navigation(root)
    assert len(set(pages)) == len(pages)
    for page in pages:
        made = page.startswith("reference/") or page in OUTSIDE.values()
        assert made or (root / "docs" / page).is_file(), page


def test_the_layers_in_contributing_are_those_of_the_contract(root: Path) -> None:
    project = (root / "pyproject.toml").read_text()
    layers = re.findall(r'^  "([a-z |]+)",', project[project.index("layers = [") :], re.MULTILINE)
    text = (root / "CONTRIBUTING.md").read_text()
    picture = re.findall(r"^([a-z |]+?)  +\S", text.partition("of this picture")[2].split("```")[1], re.MULTILINE)
    assert picture == layers


def test_what_contributing_names_is_there(root: Path) -> None:
    text = (root / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:mirage|docs|tests|plugins|slurm-testbed|deploy)/[\w./-]*)`", text))
    assert len(named) > 15
    assert [name for name in sorted(named) if not (root / name).exists()] == []
    files = re.findall(r"\| `?(test_\w+\.py)", text) + re.findall(r"`(test_\w+\.py)`", text)
    assert [name for name in files if not list((root / "tests").rglob(name))] == []


def test_every_target_of_make_that_contributing_names_is_one(root: Path) -> None:
    text = (root / "CONTRIBUTING.md").read_text()
    named = {
        word
        for line in re.findall(r"^make ([a-z ]+?)(?:  |$)|`make ([a-z ]+)`", text, re.MULTILINE)
        for word in " ".join(line).split()
    }
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    assert named - targets == set()
    assert {"test", "docs", "plugins"} <= named

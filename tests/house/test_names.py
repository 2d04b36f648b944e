"""A class name stands for one concept, and the modules are few."""

from __future__ import annotations

import ast
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from house.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SAME_CONCEPT = {
    "Chain": "the client's view of a chain",
    "Entry": "the client's view of a journal entry",
    "Link": "the client's view of a link",
}
"""Classes of the public client that show a concept of the domain under the name it has there."""
MOST_MODULES = 625
LEAST_MEDIAN = 110


def test_a_class_name_is_given_once() -> None:
    found = defaultdict(list)
    for path in _modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    shared = {name: places for name, places in found.items() if len(places) > 1}
    assert shared.keys() == SAME_CONCEPT.keys(), shared


def test_modules_are_few_and_none_is_a_crumb_by_habit() -> None:
    lengths = [path.read_text().count("\n") for path in _modules()]
    assert len(lengths) <= MOST_MODULES
    assert median(lengths) >= LEAST_MEDIAN


def _modules() -> list[Path]:
    return [path for folder in ("mirage", "plugins") for path in sorted((ROOT / folder).rglob("*.py"))]

"""``mirage bench requests``: its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.allocation.inference.registry import POLICIES
from mirage.bench import requests

if TYPE_CHECKING:
    import pytest


def test_the_bench_measures_runs_and_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("SECONDS", 0.05), ("REPEATS", 1), ("DECISIONS", 2)):
        monkeypatch.setattr(requests, name, few)
    runs, crowded, decisions = requests.measure_requests(None, lambda step: None)
    for section in (runs, crowded):
        assert [label for label, _ in section.rows] == list(requests.PLAYED)
        assert all("million pieces/s" in value for _, value in section.rows)
    assert "64 ready pieces, 8 units" in decisions.title
    assert {label for label, _ in decisions.rows} == {name for name in POLICIES if not name.endswith(":")}

"""Times of the daemon's sentences are written in local time, as Slurm's commands write theirs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from mirage.cli.printing import in_local_time

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("next try at 2026-01-31T23:30:00Z; 3 attempts", "next try at 2026-02-01T00:30:00; 3 attempts"),
        ("since 2026-07-01T12:00:00Z.", "since 2026-07-01T14:00:00."),
        ("run-2026-07-01T12:00:00Z", "run-2026-07-01T12:00:00Z"),
        ("2026-07-01T12:00:00Z-copy", "2026-07-01T12:00:00Z-copy"),
        ("2026-19-39T12:00:00Z", "2026-19-39T12:00:00Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("at 12:00", "at 12:00"),
    ],
)
def test_times_of_sentences_are_local(text: str, shown: str) -> None:
    assert in_local_time(text) == shown

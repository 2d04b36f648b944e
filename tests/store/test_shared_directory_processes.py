"""Processes that share a directory, killed at random: one holder in each term, no count lost, no torn state."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING

from mirage.domain.errors import StoreUnavailable
from mirage.store.published_state import newest_state

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTING = Path(__file__).with_name("counting_process.py")
_SECONDS = 9.0


def test_shared_directory_processes_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    directory, chance, seeds = tmp_path / "shared", random.Random(1), iter(range(1_000))
    running: list[tuple[subprocess.Popen[bytes], Path]] = []
    reports: list[Path] = []

    def start() -> None:
        seed = next(seeds)
        reports.append(tmp_path / f"report{seed}")
        with reports[-1].open("wb") as out:
            running.append((_started(directory, seed, out), reports[-1]))

    seen, ends = 0, time.monotonic() + _SECONDS
    try:
        for _ in range(3):
            start()
        while time.monotonic() < ends:
            pause = time.monotonic() + 0.9 + chance.random()
            while time.monotonic() < pause:
                now = _counted(directory, seen)
                assert now >= seen, "a reader never sees an earlier state"
                seen = now
                time.sleep(0.02)
            killed, _ = running.pop(chance.randrange(len(running)))
            killed.kill()
            killed.wait()
            start()
    finally:
        for process, _ in running:
            process.kill()
            process.wait()
    _check([list(_lines(each)) for each in reports], _counted(directory), kills=len(reports))


def _started(directory: Path, seed: int, out: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, COUNTING, f"directory://{directory}", str(seed)], stdout=out)


def _counted(directory: Path, before: int = 0) -> int:
    try:
        image = newest_state(directory)
    except StoreUnavailable as error:
        assert "are missing" in str(error), error  # noqa: PT017 - all listed were replaced meanwhile
        return before
    if image is None:
        return before
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(image)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        row = database.execute("SELECT value FROM about WHERE name = 'counter'").fetchone()
    return int(row[0]) if row else 0


def _lines(report: Path) -> Iterator[tuple[int, int]]:
    for line in report.read_text().splitlines(keepends=True):
        if not line.startswith("#") and line.endswith("\n"):
            term, number = line.split()
            yield int(term), int(number)


def _check(reports: list[list[tuple[int, int]]], final: int, kills: int) -> None:
    holders = defaultdict(set)
    for who, report in enumerate(reports):
        for term, _ in report:
            holders[term].add(who)
    assert max(map(len, holders.values())) == 1, "one holder in each term"
    numbers = [number for report in reports for _, number in report]
    assert len(numbers) == len(set(numbers)), "no count is overwritten"
    assert max(numbers) <= final
    assert len(numbers) <= final <= len(numbers) + kills + 5, "each count reported is there"
    assert final > 20, "they made progress"
    by_term = sorted(pair for report in reports for pair in report)
    assert [number for _, number in by_term] == sorted(numbers), "a later term goes on from the earlier"

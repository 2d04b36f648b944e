"""Progress of a task: ``done`` or ``done total`` on a line of the file that ``MIRAGE_PROGRESS`` names.

A task may rewrite the file each time or append to it; the last complete line counts. The unit is the task's
choice: steps, samples, epochs. It counts from the very beginning, also after a restart from a checkpoint.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.allocation.engine.remains import file_of
from mirage.wholefile import open_regular

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.engine.journal import StateFolder

VARIABLE = "MIRAGE_PROGRESS"

_TAIL = 4096
"""Longest line of a report, in bytes."""


@dataclass(frozen=True, slots=True)
class Report:
    """The last report of a task."""

    done: float
    total: float | None
    written: float
    """Time of writing, by the clock of the file system: only differences are meaningful."""

    @property
    def part(self) -> float | None:
        """Part of the work that is done, at most 1; ``None`` where the task reports no total."""
        return None if self.total is None else min(1.0, self.done / self.total)

    def left_of(self, served: float) -> float | None:
        """Seconds left if it continues as in the ``served`` seconds; ``None`` where the report shows no rate."""
        if self.part is None or self.done <= 0:
            return None
        return served * (1.0 - self.part) / self.part


class NoReport(ValueError):
    """A line cannot be parsed; the text quotes it."""


def report_path(folder: StateFolder, task: str, attempt: int) -> Path:
    """The progress file of an attempt."""
    return file_of(folder.step(task, attempt), "progress")


def read_report(path: Path) -> Report | None:
    """The last report; ``None`` without a complete line. Raises ``NoReport``."""
    try:
        with open_regular(path) as file:
            about = os.fstat(file.fileno())
            file.seek(max(0, about.st_size - _TAIL))
            text = file.read(_TAIL)
    except OSError:
        return None
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    return _parsed(lines[-1].decode(errors="replace"), about.st_mtime) if lines else None


def last_report(folder: StateFolder, task: str, attempt: int) -> Report | None:
    """The same for display only: an invalid report counts as none."""
    try:
        return read_report(report_path(folder, task, attempt))
    except NoReport:
        return None


def _parsed(line: str, written: float) -> Report:
    words = line.replace("/", " ").split()
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 2 or not all(math.isfinite(number) for number in numbers):
        raise NoReport(f"{line[:80]!r} is not `done` or `done total`")
    done, total = numbers[0], numbers[1] if len(numbers) > 1 else None
    if done < 0 or (total is not None and total <= 0):
        raise NoReport(f"{line[:80]!r}: done must be at least 0, and total above 0")
    return Report(done, total, written)

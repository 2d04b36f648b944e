"""How far a task says that it is: ``done`` or ``done total`` on a line of the file that ``MIRAGE_PROGRESS`` names.

It may write the file again each time or append to it; the last whole line counts. What a line counts is the task's
own affair: steps, samples, epochs, from its very beginning, also where it continues from a checkpoint.
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
"""Bytes: no line that is meant is longer."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a task last said."""

    done: float
    total: float | None
    written: float
    """When, by the clock of the file system: only differences mean anything."""

    @property
    def part(self) -> float | None:
        """Of all that is to be done, at most 1; ``None`` where the task does not say how much that is."""
        return None if self.total is None else min(1.0, self.done / self.total)

    def left_of(self, served: float) -> float | None:
        """Seconds that are left if it continues as in the ``served`` seconds; ``None`` where it does not tell."""
        if self.part is None or self.done <= 0:
            return None
        return served * (1.0 - self.part) / self.part


class NoReport(ValueError):
    """A line that cannot be understood; the text says which."""


def report_path(folder: StateFolder, task: str, attempt: int) -> Path:
    """Where an attempt tells."""
    return file_of(folder.step(task, attempt), "progress")


def read_report(path: Path) -> Report | None:
    """``None`` where nothing was said, or nothing whole. Raises ``NoReport``."""
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
    """The same for whoever only wants to show it: what is not understood is nothing."""
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
        raise NoReport(f"{line[:80]!r}: done has to be at least 0, and total above 0")
    return Report(done, total, written)

"""What a task is given at its launch, and the progress that it reports.

A task reports ``done`` or ``done total`` on a line of the file that ``MIRAGE_PROGRESS`` names. It may rewrite
the file each time or append to it; the last complete line counts. The unit is the task's choice: steps,
samples, epochs. It counts from the very beginning, also after a restart from a checkpoint.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.allocation.engine.discovery import visible
from mirage.allocation.engine.journal import key
from mirage.allocation.engine.plan import Ranks
from mirage.allocation.engine.steps import Launch, file_of
from mirage.atomic_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.allocation.engine.journal import StateFolder
    from mirage.allocation.engine.plan import TaskSpec

VARIABLE = "MIRAGE_PROGRESS"

_TAIL = 4096
"""Longest line of a report, in bytes."""


@dataclass(frozen=True, slots=True)
class ProgressReport:
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


def read_report(path: Path) -> ProgressReport | None:
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


def last_report(folder: StateFolder, task: str, attempt: int) -> ProgressReport | None:
    """The same for display only: an invalid report counts as none."""
    try:
        return read_report(report_path(folder, task, attempt))
    except NoReport:
        return None


def _parsed(line: str, written: float) -> ProgressReport:
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
    return ProgressReport(done, total, written)


def launch_of(
    spec: TaskSpec, attempt: int, kind: str, parts: Mapping[str, Sequence[int]], folder: StateFolder
) -> Launch:
    """``kind``: kind of its devices, "" without any; ``parts``: their indices on each of its nodes."""
    per_device = spec.ranks is Ranks.DEVICE and spec.devices > 0
    own = {
        "MIRAGE_TASK": spec.name,
        "MIRAGE_ATTEMPT": str(attempt),
        "MIRAGE_STEP": str(folder.step(spec.name, attempt)),
        "MIRAGE_NODES": ",".join(parts),
        "MIRAGE_CHECKPOINT": spec.checkpoint.signal if spec.checkpoint else "",
        VARIABLE: str(report_path(folder, spec.name, attempt)),
    }
    return Launch(
        key=key(spec.name, attempt),
        path=folder.step(spec.name, attempt),
        command=spec.command,
        ranks={node: len(devices) if per_device else 1 for node, devices in parts.items()},
        visible={node: visible(kind, devices) for node, devices in parts.items()},
        environment={**spec.environment, **own},
        directory=spec.directory,
        output=Path(spec.output) if spec.output else folder.logs / f"{spec.name}.log",
    )

"""The cells of a ``sacct -P`` dump, by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import TraceError
from mirage.slurm.jobid import is_step
from mirage.trace.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.jobtable import Int64


_KNOWN_BY = ("JobID", "JobIDRaw", "Submit", "State")


@dataclass(frozen=True, slots=True)
class Dump:
    """The rows that are jobs, as columns of text."""

    path: str
    fields: tuple[str, ...]
    """Names as in the header."""
    columns: tuple[tuple[str, ...], ...]
    lines: Int64
    faults: Faults
    rows: int
    """Rows of data in the file, those of steps and broken ones included."""
    steps: int

    def __len__(self) -> int:
        return len(self.lines)

    def cells(self, *names: str) -> tuple[str, ...] | None:
        """The cells of the first of these fields that the dump has (any case); ``None`` where it has none."""
        for name in names:
            place = _place(self.fields, name)
            if place is not None:
                return self.columns[place]
        return None


def looks_like_sacct(lines: Sequence[str]) -> bool:
    """Whether the first line is the header of such a dump, also of one that lacks a field that is needed."""
    fields = _header(lines[0])
    return "|" in lines[0] and any(_place(fields, name) is not None for name in _KNOWN_BY)


def cut(lines: Sequence[str], path: str) -> Dump:
    """Cut the lines at ``|``. Blank lines and repeated headers (joined dumps) are no rows.

    Rows with another number of fields become row errors. Raises ``TraceError`` without a header with JobID.
    """
    fields = _header(lines[0])
    key = _place(fields, "JobID")
    if key is None:
        raise TraceError(path, 1, "JobID", f"is not among the fields of the header: {', '.join(fields)[:80]!r}")
    data = [(number, line) for number, line in enumerate(lines[1:], start=2) if line and line != lines[0]]
    trailing = lines[0].endswith("|")
    rows = [(number, (line[:-1] if trailing and line.endswith("|") else line).split("|")) for number, line in data]
    whole = [(number, cells) for number, cells in rows if len(cells) == len(fields)]
    jobs = [(number, cells) for number, cells in whole if not is_step(cells[key])]
    numbers = np.array([number for number, _ in jobs], dtype=np.int64)
    faults = Faults(path, numbers)
    for number, cells in rows:
        if len(cells) != len(fields):
            faults.add_line(number, _width_problem(len(cells), len(fields)))
    columns = tuple(zip(*(cells for _, cells in jobs), strict=True)) or ((),) * len(fields)
    return Dump(path, fields, columns, numbers, faults, len(rows), len(whole) - len(jobs))


def _width_problem(found: int, expected: int) -> str:
    hint = "; does a job name contain '|'?" if found > expected else "; is the row cut short?"
    return f"{found} fields where the header has {expected}{hint}"


def _header(line: str) -> tuple[str, ...]:
    return tuple(field.strip() for field in line.removesuffix("|").split("|"))


def _place(fields: tuple[str, ...], name: str) -> int | None:
    lowered = [field.lower() for field in fields]
    return lowered.index(name.lower()) if name.lower() in lowered else None

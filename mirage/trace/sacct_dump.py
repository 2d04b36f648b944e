"""The cells of a ``sacct -P`` dump by field, and the resources of its jobs.

Resources are what the jobs occupied, or asked for where they never got it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.errors import BadSpelling, TraceError
from mirage.domain.job import ABSENT
from mirage.slurm.job_state import is_step
from mirage.slurm.tres import gres_of, memory_mb, parse_gres, parse_tres
from mirage.trace.result import RowErrors
from mirage.trace.text_columns import is_missing, natural_number, read_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.domain.jobtable import Int64
    from mirage.slurm.tres import Amounts
    from mirage.trace.result import Mask

_KNOWN_BY = ("JobID", "JobIDRaw", "Submit", "State")


@dataclass(frozen=True, slots=True)
class Dump:
    """The rows that are jobs, as columns of text."""

    path: str
    fields: tuple[str, ...]
    """Names as in the header."""
    columns: tuple[tuple[str, ...], ...]
    lines: Int64
    faults: RowErrors
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
    faults = RowErrors(path, numbers)
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


RESOURCE_FIELDS = (
    *("AllocTRES", "ReqTRES", "NNodes", "AllocNodes", "ReqNodes"),
    *("AllocCPUS", "ReqCPUS", "NCPUS", "ReqMem", "ReqGRES"),
)
_GOT, _ASKED = ("AllocTRES", "AllocCPUS", "NCPUS"), ("ReqTRES", "ReqCPUS")
_BIGGEST = (1 << 31) - 1
_PLAIN = ("cpu", "mem", "node")


@dataclass(frozen=True, slots=True)
class _Resources:
    """A column of resource lists; every distinct list is kept once."""

    codes: Int64
    distinct: tuple[Amounts, ...]

    def total(self, name: str) -> Int64:
        """The amount of one resource in each row; 0 where it is not listed."""
        return np.array([dict(pairs).get(name, 0) for pairs in self.distinct], dtype=np.int64)[self.codes]

    @property
    def listed(self) -> Mask:
        """Whether anything is listed."""
        return np.array([bool(pairs) for pairs in self.distinct], dtype=bool)[self.codes]

    def gres(self) -> tuple[Amounts, ...]:
        """The generic resources of each distinct list."""
        return tuple(gres_of(pairs) for pairs in self.distinct)


def resources(dump: Dump) -> dict[str, Any]:
    """Columns ``nodes``, ``cpus``, ``memory_mb``, ``gres`` and ``gres_names`` of ``job_table``.

    What was allocated goes before what was requested: on whole-node partitions a job occupies more than it asks.
    """
    got, asked = _read(dump, "AllocTRES", parse_tres), _read(dump, "ReqTRES", parse_tres)
    nodes = _first_known(
        *(got.total("node"), _count(dump, "AllocNodes"), _count(dump, "NNodes")),
        *(asked.total("node"), _count(dump, "ReqNodes")),
    )
    cpus = _first_known(
        *(got.total("cpu"), _count(dump, "AllocCPUS"), _count(dump, "NCPUS")),  # NCPUS is AllocCPUS (man sacct)
        *(asked.total("cpu"), _count(dump, "ReqCPUS")),
    )
    memory = _first_known(got.total("mem"), asked.total("mem"), _requested_memory(dump, nodes, cpus))
    names, gres = _gres(got, asked, _read(dump, "ReqGRES", _gres_as_tres), nodes)
    return {"nodes": _narrow(nodes), "cpus": _narrow(cpus), "memory_mb": memory, "gres": gres, "gres_names": names}


def size_notes(dump: Dump) -> tuple[str, ...]:
    """Return a note if the dump has requested but no allocated resources."""
    if any(dump.cells(field) is not None for field in _GOT) or all(dump.cells(field) is None for field in _ASKED):
        return ()
    return (
        "CPUs are those requested, as the dump has no AllocTRES or NCPUS: jobs that had whole nodes look smaller",
    )


def _first_known(*columns: Int64) -> Int64:
    """Return the first positive number of each row, or ``ABSENT``."""
    known = np.full(len(columns[0]), ABSENT, dtype=np.int64)
    for column in columns:
        known = np.where(known > 0, known, column)
    return np.where(known > 0, known, ABSENT)


def _narrow(numbers: Int64) -> Any:
    return numbers.astype(np.int32)


def _count(dump: Dump, field: str) -> Int64:
    """A column of counts; zeros where the dump has none."""
    cells = dump.cells(field)
    if cells is None:
        return np.zeros(len(dump), dtype=np.int64)
    return read_cells(cells, natural_number, np.int32, field, dump.faults).astype(np.int64)


def _read(dump: Dump, field: str, read: Callable[[str], Amounts]) -> _Resources:
    """Read a column of lists; invalid ones are empty and a row error."""
    index: dict[str, int] = {}
    cells = dump.cells(field) or ("",) * len(dump)
    codes = np.fromiter((index.setdefault(t, len(index)) for t in cells), dtype=np.int64, count=len(dump))
    distinct = []
    for text, code in index.items():
        amounts, problem = _occupied(text, read)
        distinct.append(amounts)
        if problem:
            _blame(dump, codes == code, field, problem)
    return _Resources(codes, tuple(distinct))


def _blame(dump: Dump, rows: Mask, field: str, problem: str) -> None:
    dump.faults.add_where(rows, field, lambda _: problem)


def _occupied(text: str, read: Callable[[str], Amounts]) -> tuple[Amounts, str]:
    """The amounts that keep others out (energy, licences and billing do not), and what is wrong with them."""
    try:
        amounts = tuple(pair for pair in read(text) if pair[0] in _PLAIN or pair[0].startswith("gres/"))
    except BadSpelling as refusal:
        return (), str(refusal)
    too_big = any(amount > _BIGGEST for _, amount in amounts)
    return ((), f"{text[:40]!r} is out of range") if too_big else (amounts, "")


def _gres_as_tres(text: str) -> Amounts:
    return tuple((f"gres/{name}", amount) for name, amount in parse_gres(text))


def _gres(got: _Resources, asked: _Resources, per_node: _Resources, nodes: Int64) -> tuple[tuple[str, ...], Any]:
    """Names, and the amounts of each row over all its nodes.

    ReqGRES (Slurm before 20.11) repeats ``--gres``, which counts per node.
    """
    columns = (got, asked, per_node)
    names = tuple(dict.fromkeys(n for column in columns for pairs in column.gres() for n, _ in pairs))
    allocated, requested, by_node = (_matrix(column, names) for column in columns)
    old = by_node * np.maximum(nodes, 1)[:, None]
    newer = np.where(got.listed[:, None], allocated, requested)
    amounts = np.where((got.listed | asked.listed)[:, None], newer, old)
    return names, np.minimum(amounts, _BIGGEST).astype(np.int32)


def _matrix(column: _Resources, names: tuple[str, ...]) -> Int64:
    rows = [[dict(pairs).get(name, 0) for name in names] for pairs in column.gres()]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(names))[column.codes]


def _requested_memory(dump: Dump, nodes: Int64, cpus: Int64) -> Int64:
    """ReqMem over all nodes; before Slurm 21.08 it ends in ``n`` (per node) or ``c`` (per CPU)."""
    cells = dump.cells("ReqMem")
    if cells is None:
        return np.zeros(len(dump), dtype=np.int64)
    amounts = read_cells(cells, _memory, np.int32, "ReqMem", dump.faults).astype(np.int64)
    per_node = np.array([text.endswith("n") for text in cells], dtype=bool)
    per_cpu = np.array([text.endswith("c") for text in cells], dtype=bool)
    factor = np.where(per_node, nodes, np.where(per_cpu, cpus, 1))
    return amounts * np.maximum(factor, 1)


def _memory(text: str) -> int:
    return ABSENT if is_missing(text) else memory_mb(text[:-1] if text.endswith(("n", "c")) else text)

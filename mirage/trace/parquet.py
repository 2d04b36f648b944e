"""Job tables in parquet files: Mirage's own, which keep everything, and plain ones by their columns' names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.datafiles import Frame, pyarrow
from mirage.domain.errors import BadSpelling, TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.slurm.job_state import parse_state
from mirage.trace.result import FieldNames, ImportCounts, ImportResult, RowErrors, finish

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from mirage.domain.jobtable import Int64, JobTable, Names
    from mirage.trace.result import Strictness


_ABOUT = b"mirage.jobtable"
_GRES = "gres:"
_NAMES = FieldNames("submit", "start", "end", "limit", "nodes")
_TEXTS: dict[str, tuple[str, ...]] = {
    name: (name,) for name in ("user", "account", "partition", "qos", "constraint", "node_list")
}
_TEXTS |= {"name": ("name", "name_key")}
_INT64: dict[str, tuple[str, ...]] = {
    name: (name, f"{name}_s") for name in ("submit", "eligible", "start", "end", "limit")
}
_INT64 |= {"priority": ("priority",), "memory_mb": ("memory_mb", "req_mem_total")}
_RUN = ("run", "run_s")
_GPUS = "gpus"
_NEVER_STARTED = "_PENDING"
_OTHER_STATES = {
    "": JobState.COMPLETED,
    "UNKNOWN": JobState.COMPLETED,
    "PASS": JobState.COMPLETED,  # PASS and KILLED: SenseTime's words (Helios)
    "KILLED": JobState.CANCELLED,
}
_BIGGEST = (1 << 31) - 1


def write_table(table: JobTable, path: Path) -> None:
    """Write a table (zstd); ``import_parquet`` gives back its columns, origin, source and notes.

    What is absent is null, states are Slurm's names, and GRES ``gpu:a100`` is the column ``gres:gpu:a100``.
    Raises ``MissingExtra`` without pyarrow, ``TraceError`` where the file cannot be written.
    """
    arrow, files = pyarrow()
    columns = {"job_id": arrow.array(table.job_id.tolist(), arrow.string())}
    columns |= {name: _coded(arrow, getattr(table, name)) for name in _TEXTS}
    columns |= {name: _nullable(arrow, getattr(table, name)) for name in (*_INT64, "nodes", "cpus")}
    columns["exit_code"] = arrow.array(table.exit_code)
    columns["state"] = arrow.array([JobState(s).name for s in table.state.tolist()], arrow.string())
    columns |= {_GRES + name: arrow.array(table.gres[:, place]) for place, name in enumerate(table.gres_names)}
    about = {"source": table.source, "origin": table.origin, "notes": table.notes}
    frame = arrow.table(columns).replace_schema_metadata({_ABOUT: json.dumps(about)})
    try:
        files.write_table(frame, path, compression="zstd")
    except OSError as error:
        raise TraceError(str(path), 0, "", f"cannot be written: {error.strerror or error}") from error


def _coded(arrow: Any, names: Names) -> Any:
    codes = arrow.array(names.codes, mask=names.codes < 0)
    return arrow.DictionaryArray.from_arrays(codes, arrow.array(list(names.vocabulary), arrow.string()))


def _nullable(arrow: Any, numbers: NDArray[Any]) -> Any:
    return arrow.array(numbers, mask=numbers == ABSENT)


def import_parquet(data: bytes, path: str, strictness: Strictness) -> ImportResult:
    """Read a table that ``write_table`` wrote, or any with a column ``submit`` or ``submit_s``.

    Known columns: those of ``JobTable``; times also with ``_s``; ``gpus``, ``run_s``, ``name_key``. A state may
    end in ``_PENDING`` (the job never started). Raises ``MissingExtra`` without pyarrow, ``TraceError`` for a file
    that is no such table and, where strict, for the first bad row.
    """
    frame = Frame(data, path)
    if frame.find(_INT64["submit"]) is None:
        raise TraceError(path, 0, "submit", f"no such column among {', '.join(frame.names)[:120]!r}")
    faults = RowErrors(path, np.arange(1, frame.rows + 1))
    columns, notes = _columns(frame, faults)
    table, rejected = finish(columns, faults, _NAMES, strictness)
    counts = ImportCounts(frame.rows, len(table), len(rejected))
    return ImportResult(_with_about(table, frame.about(_ABOUT), path, notes), rejected, counts)


def _with_about(table: JobTable, about: dict[str, Any], path: str, notes: list[str]) -> JobTable:
    """The table with the source, origin and notes that it was written with."""
    origin = about.get("origin")
    kept = about.get("notes")
    texts = [note for note in kept if isinstance(note, str)] if isinstance(kept, list) else []
    return replace(
        table,
        source=str(about.get("source") or path),
        origin=origin if isinstance(origin, int) else 0,
        notes=(*texts, *notes),
    )


def _columns(frame: Frame, faults: RowErrors) -> tuple[dict[str, Any], list[str]]:
    notes: list[str] = []
    columns: dict[str, Any] = {name: frame.numbers(names) for name, names in _INT64.items()}
    columns |= {name: frame.texts(names) for name, names in _TEXTS.items()}
    columns |= {name: _narrow(frame.numbers((name,)), name, faults) for name in ("nodes", "cpus")}
    columns["exit_code"] = _narrow(frame.numbers(("exit_code",), default=0), "exit_code", faults)
    columns |= _gres(frame, faults)
    _give_starts(columns, frame, notes)
    columns["state"] = _states(frame.texts(("state",)), columns, faults, notes)
    if (ids := frame.ids(("job_id",))) is not None:
        columns["job_id"] = np.array(ids, dtype=np.str_)
    return columns, notes


def _give_starts(columns: dict[str, Any], frame: Frame, notes: list[str]) -> None:
    """Traces of run times without starts: each job starts as it is submitted, for a simulator to move."""
    run = frame.numbers(_RUN)
    if not (run >= 0).any() or (columns["start"] != ABSENT).any():
        return
    known = (run >= 0) & (columns["submit"] != ABSENT)
    columns["start"] = np.where(known, columns["submit"], ABSENT)
    columns["end"] = np.where(known, columns["submit"] + np.maximum(run, 0), columns["end"])
    notes.append("the source has run times but no starts: jobs start when submitted, so their waits mean nothing")


def _narrow(numbers: Int64, name: str, faults: RowErrors) -> NDArray[np.int32]:
    """Convert to 32 bits; a row error for numbers that are too large, or negative but not ``ABSENT``."""
    bad = (numbers > _BIGGEST) | (numbers < ABSENT)
    faults.add_where(bad, name, lambda row: f"{numbers[row]} is out of range")
    return np.where(bad, ABSENT, numbers).astype(np.int32)


def _gres(frame: Frame, faults: RowErrors) -> dict[str, Any]:
    found = [name for name in frame.names if name.startswith(_GRES)]
    names = [name.removeprefix(_GRES) for name in found]
    if not found and _GPUS in frame.names and (frame.numbers((_GPUS,), default=0) > 0).any():
        found, names = [_GPUS], ["gpu"]
    amounts = [_narrow(frame.numbers((name,), default=0), name, faults) for name in found]
    matrix = np.stack(amounts, axis=1) if amounts else np.zeros((frame.rows, 0), dtype=np.int32)
    return {"gres": np.maximum(matrix, 0), "gres_names": tuple(names)}


def _states(names: Names, columns: dict[str, Any], faults: RowErrors, notes: list[str]) -> NDArray[np.int8]:
    """Every distinct text is read once; jobs whose state is not known count as completed, or pending."""
    read = [_state(text) for text in names.vocabulary]
    numbers = np.array([*(ABSENT if s is None else int(s) for s in read), JobState.COMPLETED], dtype=np.int8)
    states = numbers[names.codes]
    wrong = np.array([*(s is None for s in read), False], dtype=bool)[names.codes]
    faults.add_where(wrong, "state", lambda row: f"{names[row][:40]!r} is not a job state")
    unknown = np.array([*(not t or t == "UNKNOWN" for t in names.vocabulary), True], dtype=bool)[names.codes]
    if unknown.any():
        notes.append(f"jobs of unknown state (completed where they have an end): {int(unknown.sum())}")
    began, open_ended = columns["start"] != ABSENT, unknown & (columns["end"] == ABSENT)
    now = np.where(began, int(JobState.RUNNING), int(JobState.PENDING))
    return np.where(open_ended, now, states).astype(np.int8)


def _state(text: str) -> JobState | None:
    word = text.upper().removesuffix(_NEVER_STARTED)
    if word in _OTHER_STATES:
        return _OTHER_STATES[word]
    try:
        return parse_state(word)
    except BadSpelling:
        return None

"""Read a task file: TOML, one ``[[task]]`` per task, ``[defaults]`` for what they share.

All errors are reported together before any task runs, each with line, task and key. TOML readers do not keep
the line numbers of tables and keys; they are found here.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from mirage.allocation.engine.plan import Checkpoint, Ranks, TaskSpec, WorkPlan, find_cycles, repeated
from mirage.atomic_file import LARGEST_TEXT
from mirage.documentreading import Fault, faults_of, parse_toml
from mirage.domain.errors import BadSpelling, ConfigError
from mirage.slurm.duration import parse_human
from mirage.slurm.tres import memory_mb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

TABLE = "task"
DEFAULTS = "defaults"

_HEADER = re.compile(r"\s*\[\[?\s*([\w.-]+)\s*\]\]?")
_KEY = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*[.=]")
_QUOTES = ('"""', "'''")


@dataclass(slots=True)
class TableLines:
    """One table of the file."""

    line: int
    """Of its header, from 1."""
    keys: dict[str, int] = field(default_factory=dict)

    def of(self, key: str) -> int:
        """The line of a key; that of the header where it is not given there."""
        return self.keys.get(key, self.line)


@dataclass(frozen=True, slots=True)
class TaskFileLines:
    """The tables of a file."""

    tasks: list[TableLines]
    defaults: TableLines


def find_places(text: str) -> TaskFileLines:
    """Headers and keys by line; skips text within ``\"\"\"``."""
    places = TaskFileLines([], TableLines(1))
    current, nested, quote = TableLines(1), "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            quote = "" if line.count(quote) % 2 else quote
            continue
        header = _HEADER.match(line)
        if header:
            name, _, nested = header[1].partition(".")
            current = _entered(places, name, nested, number, current)
        elif found := _KEY.match(line):
            current.keys.setdefault(nested or found[1], number)
        quote = next((mark for mark in _QUOTES if line.count(mark) % 2), "")
    return places


def _entered(places: TaskFileLines, name: str, nested: str, number: int, current: TableLines) -> TableLines:
    if nested:
        current.keys.setdefault(nested, number)
        return current
    if name == TABLE:
        places.tasks.append(TableLines(number))
        return places.tasks[-1]
    if name == DEFAULTS:
        places.defaults.line = number
        return places.defaults
    return TableLines(number)


_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_SHOWN = 40


def _seconds(value: object) -> object:
    """Parse ``"2h"`` to seconds; numbers are seconds already."""
    return float(_spelt(value, parse_human)) if isinstance(value, str) else value


def _megabytes(value: object) -> object:
    return _spelt(value, memory_mb) if isinstance(value, str) else value


def _spelt(text: str, read: Callable[[str], int]) -> int:
    """Convert errors to ``ValueError``: pydantic collects only those."""
    try:
        return read(text)
    except BadSpelling as error:
        raise ValueError(str(error)) from None


def _signal(value: object) -> object:
    name = str(value).upper().removeprefix("SIG")
    if f"SIG{name}" not in signal.Signals.__members__ or name in ("KILL", "STOP"):
        raise ValueError(f"{value!r} is no signal that a task can receive, such as USR1 or TERM")
    return name


def _plain(value: object) -> object:
    """Text without NUL, which no command line can hold."""
    if isinstance(value, str) and "\0" in value:
        raise ValueError("holds a NUL character")
    return value


Duration = Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)]
Megabytes = Annotated[int, BeforeValidator(_megabytes), Field(ge=0, lt=1 << 40)]
Text = Annotated[str, BeforeValidator(_plain)]


class _TaskFileModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CheckpointEntry(_TaskFileModel):
    """``checkpoint`` of a task."""

    signal: Annotated[str, BeforeValidator(_signal)] = "USR1"
    grace: Duration = 120.0
    restart: Annotated[float, BeforeValidator(_seconds), Field(ge=0, allow_inf_nan=False)] = 60.0


class TaskEntry(_TaskFileModel):
    """One ``[[task]]`` table."""

    id: Annotated[str, Field(pattern=f"^{_NAME}$")]
    command: Annotated[tuple[Text, ...], Field(min_length=1, strict=False)] | None = None
    script: Text | None = None
    devices: Annotated[int, Field(ge=0, le=1 << 16)] = 1
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    kinds: Annotated[tuple[str, ...], Field(strict=False)] = ()
    max_nodes: Annotated[int, Field(ge=1)] = 1
    ranks: Annotated[Ranks, Field(strict=False)] = Ranks.NODE
    cpus: Annotated[int, Field(ge=0, lt=1 << 31)] = 1
    memory: Megabytes = 0
    expected: Duration | None = None
    time_limit: Duration | None = None
    deadline: datetime | Duration | None = None
    model: str = ""
    tenant: str = ""
    after: Annotated[tuple[str, ...], Field(strict=False)] = ()
    retries: Annotated[int, Field(ge=0, le=1000)] = 0
    checkpoint: CheckpointEntry | None = None
    environment: dict[str, Text] = {}
    directory: Text = "."
    output: Text = ""

    @model_validator(mode="after")
    def _consistent(self) -> TaskEntry:
        if (self.command is None) == (self.script is None):
            raise ValueError("give either command = [...] or script = '...'")
        if self.share < 1 and self.devices != 1:
            raise ValueError(f"share = {self.share:g} needs devices = 1, this task has {self.devices}")
        if wrong := [name for name in self.environment if not _VARIABLE.fullmatch(name)]:
            raise ValueError(f"environment: {wrong[0]!r} is no valid name of a variable")
        if self.id in self.after:
            raise ValueError("after: the task waits for itself")
        return self


def read_plan(path: Path) -> WorkPlan:
    """The tasks of a file. Raises ``ConfigError`` with every error in it."""
    text = _text(path)
    try:
        document = parse_toml(text)
    except ValueError as error:
        raise ConfigError(str(path), f"is not TOML: {error}") from error
    places = find_places(text)
    tables, mistakes = _tables(document)
    entries: list[TaskEntry | None] = []
    for number, table in enumerate(tables):
        entry, found = _read(table, number, document.get(DEFAULTS, {}), places)
        entries.append(entry)
        mistakes += found
    mistakes += _among(entries, tables, places)
    if mistakes:
        raise ConfigError(str(path), _summary(mistakes))
    return WorkPlan(path, tuple(_spec(entry, path) for entry in entries if entry))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:  # may be a pipe
            content = file.read(LARGEST_TEXT + 1)
        if len(content) > LARGEST_TEXT:
            raise ConfigError(str(path), f"is larger than {LARGEST_TEXT:,} bytes; name a task file")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(str(path), f"cannot be read: {reason}") from error


def _tables(document: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    mistakes = [
        f"unknown table [{name}]; use [[{TABLE}]] or [{DEFAULTS}]"
        for name in document
        if name not in (TABLE, DEFAULTS)
    ]
    tables = document.get(TABLE, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return [], [*mistakes, f"each task begins with [[{TABLE}]], in double brackets"]
    if not isinstance(document.get(DEFAULTS, {}), dict):
        return [], [*mistakes, f"[{DEFAULTS}] is a table"]
    if not tables:
        mistakes.append(f"has no [[{TABLE}]]")
    return tables, mistakes


def _read(
    table: dict[str, Any], number: int, defaults: dict[str, Any], places: TaskFileLines
) -> tuple[TaskEntry | None, list[str]]:
    both = {"command", "script"}
    inherited = {key: value for key, value in defaults.items() if not (key in both and both & table.keys())}
    merged = inherited | table
    if isinstance(defaults.get("environment"), dict) and isinstance(table.get("environment"), dict):
        merged["environment"] = defaults["environment"] | table["environment"]
    try:
        return TaskEntry.model_validate(merged), []
    except ValidationError as error:
        return None, [_mistake(fault, table, number, defaults, places) for fault in faults_of(error)]


def _mistake(
    fault: Fault, table: dict[str, Any], number: int, defaults: dict[str, Any], places: TaskFileLines
) -> str:
    location = [str(part) for part in fault.path if not str(part).startswith("function-")]
    key = location[0] if location else ""
    where = f"{_named(table, number)}{f', {key}' if key else ''}"
    said = fault.said
    if fault.kind == "extra_forbidden":
        said = f"unknown key; the keys of a task are {', '.join(TaskEntry.model_fields)}"
    if key in defaults and key not in table:
        return f"line {places.defaults.of(key)}: {where}: {said}"
    return _at(where, places.tasks, number, said, key)


def _at(where: str, tasks: list[Any], number: int, said: str, key: str = "") -> str:
    """The table's position gives the line; inline arrays of tasks have no lines."""
    line = f"line {tasks[number].of(key)}: " if number < len(tasks) else ""
    return f"{line}{where}: {said}"


def _named(table: dict[str, Any], number: int) -> str:
    return f"task {table['id']!r}" if isinstance(table.get("id"), str) else f"task number {number + 1}"


def _among(entries: list[TaskEntry | None], tables: list[dict[str, Any]], places: TaskFileLines) -> list[str]:
    """Errors that only all tasks together show."""
    names = [str(table.get("id", f"#{number}")) for number, table in enumerate(tables)]
    mistakes = [
        _at(f"task {names[at]!r}, id", places.tasks, at, "an earlier task has this id", "id")
        for at in repeated(names)
    ]
    known = set(names)
    for number, entry in enumerate(entries):
        for name in entry.after if entry else ():
            if name not in known:
                where = f"task {names[number]!r}, after"
                mistakes.append(_at(where, places.tasks, number, f"there is no task {name!r}", "after"))
    return mistakes + _cycles(entries, names, places)


def _cycles(entries: Iterable[TaskEntry | None], names: list[str], places: TaskFileLines) -> list[str]:
    after = {entry.id: entry.after for entry in entries if entry}
    return [
        _at(
            f"task {ring[0]!r}, after", places.tasks, names.index(ring[0]),
            f"tasks wait for each other: {' -> '.join((*ring, ring[0]))}", "after",
        )
        for ring in find_cycles(after)
        if len(ring) > 1
    ]  # fmt: skip


def _summary(mistakes: list[str]) -> str:
    shown = mistakes[:_MOST_SHOWN]
    if len(mistakes) > len(shown):
        shown.append(f"and {len(mistakes) - len(shown)} more")
    return shown[0] if len(shown) == 1 else f"{len(mistakes)} errors\n  " + "\n  ".join(shown)


def _spec(entry: TaskEntry, path: Path) -> TaskSpec:
    folder = path.resolve().parent
    relative = not isinstance(entry.deadline, datetime)
    return TaskSpec(
        name=entry.id,
        command=entry.command or ("/bin/sh", "-c", entry.script or ""),
        devices=entry.devices,
        share=entry.share,
        kinds=entry.kinds,
        max_nodes=entry.max_nodes,
        ranks=entry.ranks,
        cpus=entry.cpus,
        memory_mb=entry.memory,
        expected=entry.expected,
        time_limit=entry.time_limit,
        deadline=_epoch(entry.deadline) if isinstance(entry.deadline, datetime) else entry.deadline,
        deadline_relative=relative,
        model=entry.model,
        tenant=entry.tenant,
        after=tuple(dict.fromkeys(entry.after)),
        retries=entry.retries,
        checkpoint=Checkpoint(**entry.checkpoint.model_dump()) if entry.checkpoint else None,
        environment=dict(entry.environment),
        directory=str(folder / entry.directory),
        output=str(folder / entry.output) if entry.output else "",
    )


def _epoch(instant: datetime) -> float:
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()

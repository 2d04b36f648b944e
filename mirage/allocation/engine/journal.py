"""The state directory's journal: JSON lines, one file per agent run, and claims.

Links overlap, on different nodes, over a network file system. There, appends of two machines to one file are not
atomic, and SQLite's locks are not reliable. So each agent run appends to a separate file that no other process
writes; readers read all files. Two agent runs must not start the same attempt at a task: a claim decides, a name
that can be created only once (``link``), which network file systems do guarantee. A stale view of a directory may
cost time, but nothing starts twice. A last line that was cut off by a crash is skipped. An agent that is restarted
is another agent run, so no file is ever repaired.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.allocation.engine.entries import Entry, read, spell
from mirage.atomic_file import open_regular, read_regular
from mirage.domain.errors import ConfigError
from mirage.domain.files import HANDOVER_FOLDER
from mirage.ownplaces import check_not_replaceable, make_own_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGEST_JOURNAL = 256 << 20
"""Largest journal of one agent run, in bytes; that of a million tasks is about as large."""
_LONGEST_LINE = 1 << 20
_LARGEST_CLAIM = 4_096
_MOST_LATE = 100_000
_NOTHING = b"\0 \t\r\n"
"""What a file system leaves of a line that was being written when the machine crashed."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The state directory of a task file, shared by all links."""

    path: Path

    @property
    def journals(self) -> Path:
        """Journals: one file per agent run."""
        return self.path / "journal"

    @property
    def claims(self) -> Path:
        """Claims: one file per attempt that was ever begun."""
        return self.path / "claims"

    @property
    def steps(self) -> Path:
        """Files that supervisors leave about their steps."""
        return self.path / "steps"

    @property
    def logs(self) -> Path:
        """Output of tasks without an output file."""
        return self.path / "logs"

    @property
    def status(self) -> Path:
        """The status document."""
        return self.path / "status.json"

    def make(self) -> None:
        """Create the directory. Raises ``ConfigError``, also where another user could have written to it.

        Its content decides which tasks are done, and a link placed in it would redirect what is written.
        """
        try:
            above = (self.path.parent,) if self.path.parent.name == HANDOVER_FOLDER else ()
            own = (*above, self.path)
            own[0].parent.mkdir(parents=True, exist_ok=True)
            check_not_replaceable(own[0])
            for folder in (*own, self.journals, self.claims, self.steps, self.logs):
                make_own_directory(folder)
        except OSError as error:
            raise ConfigError(str(self.path), f"no place for the journal: {error.strerror or error}") from error

    def step(self, task: str, attempt: int) -> Path:
        """Path prefix of the files about one attempt."""
        return self.steps / key(task, attempt)

    def claim(self, task: str, attempt: int, life: str) -> bool:
        """Claim this attempt: at most one caller on any machine gets ``True``. Raises ``OSError``."""
        draft = self.claims / f"{life}.draft"
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            file.write(f"{life}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self.claims / key(task, attempt))
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        try:
            _sync_folder(self.claims)
        except OSError:
            self.give_back(task, attempt)
            raise
        return True

    def give_back(self, task: str, attempt: int) -> None:
        """Delete our claim to an attempt of which nothing was written, so that another agent run may claim it."""
        with contextlib.suppress(OSError):
            (self.claims / key(task, attempt)).unlink()

    def claimed(self) -> Iterator[tuple[str, int, str]]:
        """Task, attempt and agent run of each claim."""
        for path in self.claims.iterdir():
            task, _, attempt = path.name.rpartition(".")
            if task and attempt.isdecimal():
                content = read_regular(path, _LARGEST_CLAIM, follow_links=False)
                yield task, int(attempt), content.decode(errors="replace").strip()


def key(task: str, attempt: int) -> str:
    """Name of one attempt; task ids may contain dots, attempts do not."""
    return f"{task}.{attempt}"


class JournalWriter:
    """Appends to the file of one agent run. Each entry is on the disk before what follows it.

    On a full file system, entries about what has happened wait in memory, in their order, and running tasks are
    still monitored. An entry about what is about to happen must be on the disk first.
    """

    def __init__(self, folder: StateFolder, life: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(folder.journals / f"{life}.jsonl", flags, 0o644)
        _sync_folder(folder.journals)
        self._size = 0
        self._late: list[bytes] = []
        self.problem = ""
        """Why entries wait; empty if none waits."""

    def write(self, entry: Entry, *, first: bool = False) -> None:
        """Append one entry. ``first``: raise ``OSError`` unless this entry and all before it are on the disk."""
        self._late.append((spell(entry) + "\n").encode())
        try:
            self.flush()
        except OSError:
            if first:
                self._late.pop()
            if first or len(self._late) > _MOST_LATE:
                raise

    @property
    def waits(self) -> bool:
        """Whether entries wait for room."""
        return bool(self._late)

    def flush(self) -> None:
        """Write the waiting entries. Raises ``OSError``; none of them is in the file then."""
        content = b"".join(self._late)
        try:
            if os.write(self._file, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as error:
            self.problem = error.strerror or str(error)
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(content)
        self._late.clear()
        self.problem = ""

    def close(self) -> int:
        """Close the file; returns the number of lost entries."""
        with contextlib.suppress(OSError):
            self.flush()
        os.close(self._file)
        return len(self._late)


@dataclass(slots=True)
class JournalReader:
    """Reads all files of a directory; each call returns the new entries."""

    folder: StateFolder
    _read: dict[str, int] = field(default_factory=dict)

    def news(self) -> list[tuple[str, Entry]]:
        """``(life, entry)``, in the order of each agent run. Raises ``ConfigError`` for an invalid line."""
        found = list[tuple[str, Entry]]()
        for path in sorted(self.folder.journals.glob("*.jsonl")):
            found += ((path.stem, entry) for entry in self._of(path))
        return found

    def _of(self, path: Path) -> Iterator[Entry]:
        at = self._read.get(path.stem, 0)
        try:
            with open_regular(path, follow_links=False) as file:
                size = os.fstat(file.fileno()).st_size
                if size > LARGEST_JOURNAL:
                    raise ConfigError(str(path), f"{size:,} bytes, a journal has {LARGEST_JOURNAL:,} at most")
                file.seek(at)
                lines = iter(lambda: file.readline(_LONGEST_LINE), b"")
                for line in lines:
                    if not line.endswith(b"\n"):
                        _refuse_long(path, line)
                        break  # the last one, which is not whole yet
                    at += len(line)
                    self._read[path.stem] = at
                    if line.strip(_NOTHING):
                        yield _entry(path, line)
        except OSError as error:
            raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error


def _refuse_long(path: Path, line: bytes) -> None:
    if len(line) >= _LONGEST_LINE:
        raise ConfigError(str(path), f"a line of {_LONGEST_LINE:,} bytes or more is no entry of a journal")


def _entry(path: Path, line: bytes) -> Entry:
    try:
        return read(line.decode())
    except ValueError as error:
        shown = line[:80].decode(errors="replace")
        advice = "delete the line: its content, such as the end of a task, is then lost"
        raise ConfigError(str(path), f"{shown!r} is damaged ({error}); {advice}") from error


def _sync_folder(folder: Path) -> None:
    """A new file's name is on the disk as well."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""A value in a directory that processes on several machines share: compare and swap without locks or a server.

Each value is a file ``NAME.N`` that is never changed. A swap creates the next number by ``link``, which succeeds
for one process only, also on network file systems (NFS, Lustre). Nothing else has to be current: a listing may
lag, a process may stop for hours between two steps.

Old files are deleted, lowest number first. A process that stopped might therefore create a number that existed
before. So after it has created N + 1 it opens N again: where N is gone, or is another file than the one that was
read, N + 1 does not count, and is removed. Number 1 has no predecessor: ``NAME.begun`` exists before any number
above 1 does, and number 1 counts only without it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from mirage.atomic_file import open_regular
from mirage.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

LARGEST = 1 << 30
"""Bytes of a value."""

_HEADER = re.compile(rb"mirage 1 ([a-z]+) ([1-9][0-9]{0,17}) ([0-9a-f]{32}) ([0-9]{1,10}) ([0-9a-f]{64})\n")
_HEADER_BYTES = 256
_GONE = (errno.ENOENT, errno.ESTALE)
_TRIES = 9
_PAUSE = 0.005
"""Seconds before the directory is listed again; doubles with each attempt."""

_REMEDIES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "delete files, or ask for a larger quota",
    errno.EROFS: "the file system is mounted read-only; use a node where it is mounted read-write",
    errno.EACCES: "the directory must belong to this user, with mode 700",
    errno.EPERM: "name a directory on a file system with hard links (NFS, Lustre, a local disk)",
    errno.EOPNOTSUPP: "name a directory on a file system with hard links (NFS, Lustre, a local disk)",
    errno.ESTALE: "the server no longer knows the directory; check the mount",
    errno.ENOENT: "the directory was removed; stop all processes that use it, put it back, start them again",
    errno.ELOOP: "symbolic links are not followed; replace it by the file itself",
}


def unavailable(path: Path, error: OSError) -> StoreUnavailable:
    """The error of a file operation, with its remedy."""
    remedy = _REMEDIES.get(error.errno or 0, "check the file system and its server")
    return StoreUnavailable(f"{path}: {error.strerror or error}; {remedy}")


@dataclass(frozen=True, slots=True)
class Numbered:
    """A value with its place."""

    number: int
    mark: str
    """Random; tells this file from another that has or had its name."""
    content: bytes


class NumberedFiles:
    """One value. Every thread may use it; all methods raise ``StoreUnavailable``."""

    def __init__(
        self, directory: Path, name: str, keep: int, listing: Callable[[Path], Sequence[str]] = os.listdir
    ) -> None:
        """``name``: lower-case letters; ``keep``: files that are kept, at least 2."""
        self._directory, self._name, self._keep, self._listing = directory, name, keep, listing
        self._known = 0
        """A number that was there: the value's number is never lower."""
        self._begun = directory / f"{name}.begun"
        self.attempted = ""
        """Mark of the value that ``add`` was called for last."""

    def path(self, number: int) -> Path:
        """The file of a number."""
        return self._directory / f"{self._name}.{number}"

    def newest(self) -> Numbered | None:
        """The value now; ``None``: there has been none. Never a damaged one, nor an earlier one in its place."""
        pause = _PAUSE
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(pause)
                pause *= 2
            number = max(self._known, *self._numbers(self._names()), 1)
            if (found := self._newest_from(number)) is not None:
                self._known = found.number
                return found
            if number == 1 and not self._exists(self._begun):
                return None
        raise StoreUnavailable(
            f"{self._directory}: the files {self._name}.N that were there are missing; nothing is stored. Stop all"
            f" processes that use the directory and put the files back. To begin again without what they held, or"
            f" with a backup as state.db, remove {self._begun.name} as well, and start again"
        )

    def follows(self, known: Numbered | None) -> bool:
        """Whether a later value than ``known`` is there, as far as can be seen from here."""
        if known is None:
            return self._exists(self.path(1)) or self._exists(self._begun)
        return self._exists(self.path(known.number + 1)) or not self._exists(self.path(known.number))

    def add(self, after: Numbered | None, content: bytes) -> Numbered | None:
        """Put a value in place of ``after``, on disk; ``None``: another one is there, and stays.

        After ``StoreUnavailable`` the value may be in place or not.
        """
        number = after.number + 1 if after is not None else 1
        value = Numbered(number, secrets.token_hex(16), content)
        self.attempted = value.mark
        draft = self._directory / f".{self._name}.{number}.{value.mark}.new"
        try:
            if after is not None:
                self._begin()
            try:
                _write(draft, _header(self._name, value) + content)
                created = self._create(draft, value)
            finally:
                with suppress(OSError):
                    draft.unlink()
            if not created:
                return None
            _sync(self._directory)
            if not self._counts(after):
                self._withdraw(value, after)
                return None
        except OSError as error:
            raise unavailable(self.path(number), error) from error
        self._known = number
        self._delete_old(number)
        return value

    def holds(self, value: Numbered) -> bool:
        """Whether the file of this value is there."""
        return self._mark(value.number) == value.mark

    def _begin(self) -> None:
        if not self._exists(self._begun):
            os.close(os.open(self._begun, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            _sync(self._directory)

    def _create(self, draft: Path, value: Numbered) -> bool:
        """``link`` may report an error although it succeeded, where an answer of the server was lost."""
        try:
            os.link(draft, self.path(value.number), follow_symlinks=False)
        except OSError as error:
            if self._mark(value.number) == value.mark:
                return True
            if error.errno == errno.EEXIST:
                return False
            raise
        return True

    def _counts(self, after: Numbered | None) -> bool:
        if after is None:
            return not self._exists(self._begun)
        return self._mark(after.number) == after.mark

    def _withdraw(self, value: Numbered, after: Numbered | None) -> None:
        """Number 1 stays: another process may have read it and begun to write number 2."""
        if after is not None and self.holds(value):
            with suppress(FileNotFoundError):
                self.path(value.number).unlink()

    def _newest_from(self, number: int) -> Numbered | None:
        """The last of the files that follow one another from this number; ``None``: it is gone."""
        if not self._exists(self.path(number)):
            return None
        while self._exists(self.path(number + 1)):
            number += 1
        return self._read(number)

    def _names(self) -> Sequence[str]:
        try:
            return self._listing(self._directory)
        except OSError as error:
            raise unavailable(self._directory, error) from error

    def _numbers(self, names: Sequence[str]) -> list[int]:
        parts = (name.partition(".") for name in names)
        return [int(n) for name, _, n in parts if name == self._name and n.isascii() and n.isdigit()]

    def _read(self, number: int) -> Numbered | None:
        path = self.path(number)
        try:
            with open_regular(path, follow_links=False) as file:
                _check_owner(os.fstat(file.fileno()), path)
                header = _parsed(file.readline(_HEADER_BYTES), self._name, number)
                content = file.read(LARGEST + 1) if header else b""
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise unavailable(path, error) from error
        if header is None or (len(content), sha256(content).hexdigest()) != header[1:]:
            raise StoreUnavailable(
                f"{path}: the file is damaged; nothing is stored. Stop all processes that use the directory, and"
                " put a copy of the file in its place. Or move the file away: the one before it counts then, as a"
                " backup that was restored"
            )
        return Numbered(number, header[0], content)

    def _mark(self, number: int) -> str:
        """Of the file of this number, from the server; empty: no such file."""
        path = self.path(number)
        try:
            with open_regular(path, follow_links=False) as file:
                header = _parsed(file.readline(_HEADER_BYTES), self._name, number)
        except OSError as error:
            if error.errno in _GONE:
                return ""
            raise unavailable(path, error) from error
        return header[0] if header else "damaged"

    def _exists(self, path: Path) -> bool:
        """By opening it: for ``stat`` a network file system may answer from its cache."""
        try:
            with open_regular(path, follow_links=False):
                return True
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise unavailable(path, error) from error

    def _delete_old(self, newest: int) -> None:
        """Lowest number first; drafts of killed processes too, which no process can put in place any more."""
        last = newest - max(2, self._keep)
        with suppress(OSError, StoreUnavailable):
            names = self._names()
            for number in sorted(self._numbers(names)):
                if number <= last:
                    self.path(number).unlink(missing_ok=True)
            for name in names:
                match = re.fullmatch(rf"\.{self._name}\.(\d{{1,18}})\.[0-9a-f]{{32}}\.new", name)
                if match is not None and int(match[1]) <= last:
                    (self._directory / name).unlink(missing_ok=True)


def check_directory(path: Path) -> None:
    """Raise ``StoreUnavailable`` unless it is a directory for this user alone, and not a symbolic link."""
    try:
        found = path.lstat()
    except OSError as error:
        raise unavailable(path, error) from error
    if not stat.S_ISDIR(found.st_mode):
        raise StoreUnavailable(f"{path}: no directory, or a symbolic link; name the directory itself")
    _check_owner(found, path)
    if found.st_mode & 0o077:
        raise StoreUnavailable(f"{path}: the directory is open to other users; run: chmod 700 {path}")


def _check_owner(found: os.stat_result, path: Path) -> None:
    if found.st_uid != os.geteuid():
        raise StoreUnavailable(f"{path}: belongs to UID {found.st_uid}; name a directory of UID {os.geteuid()}")


def _header(name: str, value: Numbered) -> bytes:
    digest = sha256(value.content).hexdigest()
    return f"mirage 1 {name} {value.number} {value.mark} {len(value.content)} {digest}\n".encode()


def _parsed(line: bytes, name: str, number: int) -> tuple[str, int, str] | None:
    """Mark, length and digest; ``None``: this is not the header of this file."""
    match = _HEADER.fullmatch(line)
    if match is None or (match[1].decode(), int(match[2])) != (name, number):
        return None
    return match[3].decode(), int(match[4]), match[5].decode()


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""One look at a file that a user named: as that user would see it, and only where it is really theirs.

The daemon's account may see what its users cannot, and directories may be written by several users. So the way to
the file is walked one directory at a time: a directory that the chain's owner may not search by its mode bits or
access control list is not entered, a symbolic link of a third user is not followed, a file of a third user does
not count, nor one with several names: a user who may write to a file may give it another name elsewhere. Each
directory is entered from the one before: a name costs the same however deep it lies, and names are counted.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mirage.backends.posixacl import read_access_list
from mirage.domain.bounds import path_problem
from mirage.domain.files import HANDOVER_FOLDER, FileState, Presence
from mirage.userdb import group_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = 0
_MOST_LINKS = 40
"""Maximum number of symbolic links in a path, as in the kernel."""
_MOST_NAMES = 3_000
"""On the way to one file, those of symbolic links included; a path alone has 2,047 at most."""
_MOST_NAMES_AT_ONCE = 8_192
"""On the ways to all files of one check."""
_LONGEST_SHOWN = 400
"""Characters of a place that an answer quotes."""
_ENTER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""O_DIRECTORY has the kernel mount what is mounted on demand."""
_PRESENT, _ABSENT = FileState(Presence.PRESENT), FileState(Presence.ABSENT)


class Unseen(Exception):
    """The file's state is unknown; the text says why, for the viewer."""

    def __init__(self, reason: str, *, denied: bool = False) -> None:
        super().__init__(reason)
        self.state = FileState(Presence.UNKNOWN, reason, denied)


@dataclass(frozen=True, slots=True)
class Viewer:
    """In whose name a file is looked for."""

    name: str
    uid: int
    groups: frozenset[int] = frozenset()
    own: bool = False
    """This process is that user's: the kernel decides what they may search."""

    @classmethod
    def of(cls, name: str) -> Viewer:
        """The user of this name; may ask another machine. Raises ``KeyError`` and ``OSError``."""
        person = pwd.getpwnam(name)
        if person.pw_uid == os.geteuid():
            return cls(name, person.pw_uid, own=True)
        return cls(name, person.pw_uid, group_ids(name))

    def may_search(self, descriptor: int, directory: os.stat_result) -> bool:
        """Whether the mode bits, or the access control list, let this user into the open ``directory``."""
        if self.own or self.uid == _ROOT:
            return True
        return read_access_list(descriptor, directory).lets_search(directory, self.uid, self.groups)


def check_files(paths: Sequence[str], viewer: Viewer) -> tuple[FileState, ...]:
    """Whether a regular file of the viewer, or of root, is at each path. May hang with their file system."""
    states, left = [], _MOST_NAMES_AT_ONCE
    for path in paths:
        if problem := path_problem(path):
            states.append(FileState(Presence.UNKNOWN, f"{path[:80]!r}: {problem}", denied=True))
        elif left <= 0:
            text = f"{_cut(path)}: not checked: the paths of one check have over {_MOST_NAMES_AT_ONCE} names"
            states.append(FileState(Presence.UNKNOWN, text))
        else:
            with _Walk(viewer) as walk:
                states.append(_state(path, walk, viewer))
                left -= walk.names
    return tuple(states)


def open_file(path: str, viewer: Viewer) -> int:
    """A file descriptor of what is at ``path``, for reading, reached as ``check_files`` does. May hang.

    The file's own type and owner are for the caller to check. Raises ``Unseen`` where the viewer may not go, and
    ``OSError``.
    """
    if problem := path_problem(path):
        raise Unseen(f"{path[:80]!r}: {problem}", denied=True)
    with _Walk(viewer) as walk:
        walk.to(path)
        return walk.open_last()


def _state(path: str, walk: _Walk, viewer: Viewer) -> FileState:
    try:
        about = walk.to(path)
    except Unseen as unseen:
        return unseen.state
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT
    except OSError as error:
        return FileState(Presence.UNKNOWN, f"{path}: {error.strerror}")
    if not stat.S_ISREG(about.st_mode):
        return FileState(Presence.UNKNOWN, f"{path}: not a regular file; only a regular file counts")
    if about.st_uid not in (viewer.uid, _ROOT):
        text = f"{path}: belongs to {_user(about.st_uid)}; only a file of {viewer.name} or root counts"
        return FileState(Presence.UNKNOWN, text)
    if about.st_nlink > 1:
        text = f"{path}: has {about.st_nlink} names (hard links); only a file with one name counts"
        return FileState(Presence.UNKNOWN, text)
    if Path(path).parent.name == HANDOVER_FOLDER and walk.folder_owner not in (viewer.uid, _ROOT):
        text = f"{path}: {HANDOVER_FOLDER} belongs to {_user(walk.folder_owner)}; only {viewer.name}'s counts"
        return FileState(Presence.UNKNOWN, text)
    return _PRESENT


class _Walk:
    """From the root to a file, links resolved here rather than by the kernel."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._links = 0
        self.names = 0
        """Number of names that were looked up."""
        self._rest: list[str] = []
        self._last = "."
        self._here: list[str] = []
        self._directory = os.open("/", _ENTER)
        self._about = os.fstat(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._directory)

    @property
    def folder_owner(self) -> int:
        """Of the directory that the last name was found in."""
        return self._about.st_uid

    def to(self, path: str) -> os.stat_result:
        """The file's own status. Raises ``Unseen`` and ``OSError``."""
        self._rest = _names(path)
        about = self._about
        while self._rest:
            if self.names + len(self._rest) > _MOST_NAMES:
                text = f"over {_MOST_NAMES} names lead to it, with those of symbolic links; name a shorter path"
                raise Unseen(f"{_cut(path)}: {text}", denied=True)
            name = self._rest.pop()
            about = self._step(name)
        return about

    def open_last(self) -> int:
        """The file that the walk has led to, for reading."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        return os.open(self._last, flags, dir_fd=self._directory)

    def _step(self, name: str) -> os.stat_result:
        self.names += 1
        if not self._viewer.may_search(self._directory, self._about):
            raise self._denied(self._viewer.name)
        if not self._rest:
            _refresh(self._directory)
        about = self._status(name)
        if stat.S_ISLNK(about.st_mode):
            self._follow(name, about)
            return self._about
        if self._rest:
            self._go(name)
        else:
            self._last = name
        return about

    def _follow(self, name: str, link: os.stat_result) -> None:
        """Follow a link of the viewer or of root alone.

        The kernel's rule for directories that all may write (``fs.protected_symlinks``) lets the directory's owner
        lead others as well; but where a link leads decides here what counts as the viewer's own word.
        """
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if link.st_uid not in (self._viewer.uid, _ROOT):
            text = f"a symbolic link of {_user(link.st_uid)}, which is not followed"
            raise Unseen(f"{_cut(self._place(name))}: {text}")
        target = os.readlink(name, dir_fd=self._directory)
        self._rest += _names(target)
        if target.startswith("/"):
            self._go("/")

    def _go(self, name: str) -> None:
        entered = os.open(name, _ENTER, dir_fd=self._directory)
        os.close(self._directory)
        self._directory, self._about = entered, os.fstat(entered)
        if name == "/":
            self._here.clear()
        elif name != "..":
            self._here.append(name)
        elif self._here:
            self._here.pop()

    def _status(self, name: str) -> os.stat_result:
        try:
            return os.stat(name, dir_fd=self._directory, follow_symlinks=False)
        except PermissionError:
            raise self._denied(_user(os.geteuid())) from None

    def _place(self, name: str = "") -> str:
        return "/" + "/".join([*self._here, name] if name else self._here)

    def _denied(self, user: str) -> Unseen:
        about, mode = self._about, stat.S_IMODE(self._about.st_mode)
        whose = f"mode {mode:04o}, owner {_user(about.st_uid)}, group {_group(about.st_gid)}"
        return Unseen(f"{_cut(self._place())}: {user} has no search permission ({whose})", denied=True)


def _cut(place: str) -> str:
    return place if len(place) <= _LONGEST_SHOWN else f"{place[:_LONGEST_SHOWN]}..."


def _names(path: str) -> list[str]:
    """The names in a path, last first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _refresh(directory: int) -> None:
    """Open the directory: an NFS client then asks whether it has changed, and forgets that a file was missing."""
    with suppress(OSError):
        os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"UID {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"GID {gid}"

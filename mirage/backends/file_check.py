"""Check of one file that a user named: as that user would see it, and only where that user owns it.

The daemon's account may see what its users cannot, and directories may be written by several users. So the way to
the file is walked one directory at a time: a directory that the chain's owner may not search by its mode bits or
access control list is not entered, a symbolic link of a third user is not followed, a file of a third user does
not count, nor one with several names: a user who may write to a file may give it another name elsewhere. Each
directory is entered from the one before: a name costs the same however deep it lies, and names are counted.

Access control lists are those of POSIX.1e, as Linux stores them in an extended attribute. Where a file has such a
list, the group bits of its mode are the list's mask: they bound what the list grants, and grant the file's group
nothing.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mirage.domain.bounds import path_problem
from mirage.domain.files import HANDOVER_FOLDER, FileState, Presence
from mirage.userdb import group_ids

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_ATTRIBUTE = "system.posix_acl_access"
_VERSION = 2
_ENTRY = struct.Struct("<HHI")
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_SEARCH = 1
_NO_LIST = (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class AccessList:
    """The entries of a list: tag, permissions, ID of the user or group."""

    entries: tuple[tuple[int, int, int], ...]

    @classmethod
    def of_mode(cls, mode: int) -> AccessList:
        """Return what the bits of a mode say."""
        bits = ((_USER_OBJ, mode >> 6), (_GROUP_OBJ, mode >> 3), (_OTHER, mode))
        return cls(tuple((tag, grant & 7, 0) for tag, grant in bits))

    @classmethod
    def parse(cls, attribute: bytes) -> AccessList:
        """Read the extended attribute (linux/posix_acl_xattr.h). Raises ``ValueError``."""
        if len(attribute) % _ENTRY.size != 4 or attribute[:4] != struct.pack("<I", _VERSION):
            raise ValueError("not a POSIX access control list of version 2")
        return cls(tuple(_ENTRY.iter_unpack(attribute[4:])))

    def lets_search(self, about: os.stat_result, uid: int, groups: Collection[int]) -> bool:
        """Whether a user who is neither root nor this process's may search (POSIX.1e draft 17, 23.1.5)."""
        if about.st_uid == uid:
            return self._any(_USER_OBJ)
        mask = any(tag == _MASK and grant & _SEARCH for tag, grant, _ in self.entries)
        masked = mask or not any(tag == _MASK for tag, _, _ in self.entries)
        named = [grant for tag, grant, owner in self.entries if tag == _USER and owner == uid]
        if named:
            return masked and bool(named[0] & _SEARCH)
        mine = [
            grant
            for tag, grant, group in self.entries
            if (tag == _GROUP_OBJ and about.st_gid in groups) or (tag == _GROUP and group in groups)
        ]
        if mine:
            return masked and any(grant & _SEARCH for grant in mine)
        return self._any(_OTHER)

    def _any(self, wanted: int) -> bool:
        return any(tag == wanted and grant & _SEARCH for tag, grant, _ in self.entries)


def read_access_list(descriptor: int, about: os.stat_result) -> AccessList:
    """Return the list of an open file, or what its mode says where it has none. Raises ``OSError``.

    A list that cannot be read as one grants nothing. Like the kernel (``acl_permission_check``), this goes by the
    mode where its group bits are all 0: the list's mask.
    """
    if not about.st_mode & stat.S_IRWXG:
        return AccessList.of_mode(stat.S_IMODE(about.st_mode))
    try:
        # By /proc: the calls that take a descriptor reject one that was opened as a place only (O_PATH).
        attribute = os.getxattr(f"/proc/self/fd/{descriptor}", _ATTRIBUTE)
    except OSError as error:
        if error.errno in _NO_LIST:
            return AccessList.of_mode(stat.S_IMODE(about.st_mode))
        raise
    try:
        return AccessList.parse(attribute)
    except ValueError:
        return AccessList(())


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

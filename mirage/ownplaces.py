"""Directories: whether another user can write to or replace them, and which file system holds them."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "panfs", "orangefs"}
_NETWORK |= {"pvfs2", "wekafs", "glusterfs", "ocfs2", "gfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph"}
_MOUNTS = Path("/proc/self/mountinfo")


def check_places(directory: Path, trusted: Collection[int]) -> None:
    """Raises ``PermissionError`` where users other than ``trusted`` may rename what lies in a part of the path.

    ``directory`` has to be resolved. Also raises what ``stat`` does.
    """
    for place in (directory, *directory.parents):
        _check_place(place, trusted)


def make_own_directory(directory: Path) -> None:
    """Make it where it is missing; it is this user's, and others cannot write to it.

    A link to such a directory is taken where it is this user's or root's. One that its group may write to, as a
    umask of 002 leaves it, is closed to the group. Raises ``PermissionError`` for a directory or link of another
    user and one that all users may write to, and whatever ``mkdir``, ``stat`` and ``chmod`` raise.
    """
    directory.mkdir(0o755, exist_ok=True)
    own, link, there = os.geteuid(), directory.lstat(), directory.stat()
    if link.st_uid not in (own, 0) or there.st_uid != own:
        uid = there.st_uid if link.st_uid in (own, 0) else link.st_uid
        told = f"{directory} belongs to another user (uid {uid}), who could change what is in it; name another"
        raise PermissionError(told)
    mode = stat.S_IMODE(there.st_mode)
    if mode & stat.S_IWOTH:
        raise PermissionError(f"others may write to {directory} (mode {mode:04o}); chmod go-w it, or name another")
    if _is_writable_by_others(there):
        directory.chmod(mode & ~stat.S_IWGRP)


def check_not_replaceable(directory: Path) -> None:
    """Raises ``PermissionError`` where every user could rename a part of the path, and what ``stat`` raises."""
    for place in directory.resolve().parents:
        mode = place.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            told = f"all users may write to {place}, and so replace what is in it; name another directory"
            raise PermissionError(told)


def _check_place(place: Path, trusted: Collection[int]) -> None:
    there = place.stat()
    if there.st_uid not in trusted:
        told = f"{place} belongs to another user, who could replace what is in it; name another directory"
        raise PermissionError(told)
    if there.st_mode & stat.S_ISVTX:
        return
    if _is_writable_by_others(there):
        raise PermissionError(
            f"other users may write to {place} and replace what is in it; name another directory"
        )


def _is_writable_by_others(there: os.stat_result) -> bool:
    shared = there.st_mode & stat.S_IWGRP and not _has_no_other_member(there.st_gid, there.st_uid)
    return bool(shared or there.st_mode & stat.S_IWOTH)


def _has_no_other_member(gid: int, uid: int) -> bool:
    """Whether a group is its user's private one, as most systems make it for each account."""
    try:
        name, group = pwd.getpwuid(uid).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def network_file_system(folder: Path) -> str:
    """The type of the network file system that holds ``folder``; empty: a local one does.

    Raises ``OSError`` where the directory cannot be resolved.
    """
    mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""
    kind = file_system(folder.resolve(), mounts)
    return kind if kind in _NETWORK else ""


def file_system(directory: Path, mounts: str) -> str:
    """The type of the file system that holds ``directory``, from the text of mountinfo; empty: not known."""
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = _unescaped(before.split()[4])
        if directory.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def _unescaped(text: str) -> str:
    """Blanks and backslashes in mount points are written in octal."""
    for octal, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, plain)
    return text

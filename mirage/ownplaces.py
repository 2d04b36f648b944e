"""Whether a directory, and all above it, is such that no other user can put anything in its place."""

from __future__ import annotations

import grp
import pwd
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


def check_places(directory: Path, trusted: Collection[int]) -> None:
    """Raises ``PermissionError`` where users other than ``trusted`` may rename what lies in a part of the path.

    ``directory`` has to be resolved. Also raises what ``stat`` does.
    """
    for place in (directory, *directory.parents):
        _check_place(place, trusted)


def _check_place(place: Path, trusted: Collection[int]) -> None:
    there = place.stat()
    if there.st_uid not in trusted:
        told = f"{place} belongs to another user, who could replace what is in it; name another folder"
        raise PermissionError(told)
    if there.st_mode & stat.S_ISVTX:
        return
    shared = there.st_mode & stat.S_IWGRP and not _has_no_other_member(there.st_gid, there.st_uid)
    if shared or there.st_mode & stat.S_IWOTH:
        raise PermissionError(f"other users may write to {place} and replace what is in it; name another folder")


def _has_no_other_member(gid: int, uid: int) -> bool:
    """Whether a group is its user's private one, as most systems make it for each account."""
    try:
        name, group = pwd.getpwuid(uid).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}

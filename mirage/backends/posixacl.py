"""Access control lists of POSIX.1e, as Linux stores them in an extended attribute: who may search a directory.

Where a file has such a list, the group bits of its mode are the list's mask: they bound what the list grants, and
grant the file's group nothing.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

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

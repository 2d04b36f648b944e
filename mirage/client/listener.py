"""Check which users listen on a daemon's socket or on a port, by asking the kernel.

The kernel of this machine says who listens: another user may take a free port, or the path of a socket.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.client.address import user_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"
_LOOPBACK = "127.0.0.1"


def users_at(table: str, port: int, host: str = _LOOPBACK) -> frozenset[int]:
    """Return the UIDs of users with sockets that listen on ``port`` and are reachable at ``host``."""
    reached, found = _reached(host), set[int]()
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) < 10 or words[3] != _LISTENS:
            continue
        address, _, at = words[1].rpartition(":")
        if address in reached and int(at, 16) == port:
            found.add(int(words[7]))
    return frozenset(found)


def listening_users(port: int, host: str = _LOOPBACK) -> frozenset[int]:
    """Return ``users_at`` for the current tables. Raises ``OSError`` if the kernel does not provide them."""
    tables = [_TABLES[0].read_text()]
    if _TABLES[1].exists():  # not where IPv6 is switched off
        tables.append(_TABLES[1].read_text())
    return frozenset[int]().union(*(users_at(table, port, host) for table in tables))


def _reached(host: str) -> frozenset[str]:
    """Return the listen addresses that are reachable at ``host``, in the format of the tables."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        return frozenset((_written(address.packed), _written(bytes(16))))
    mapped = bytes(10) + b"\xff\xff"
    ways = (address.packed, bytes(4), bytes(16), mapped + address.packed, mapped + bytes(4))
    return frozenset(map(_written, ways))


def _written(packed: bytes) -> str:
    """Format 32-bit words in this machine's byte order."""
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


MACHINES_FOLDER = Path("/run/mirage")
"""Directory of the socket of the machine's daemon."""

_CREDENTIALS = struct.Struct("3i")
_FIRST_PERSON = 1_000
_DYNAMIC = range(61_184, 65_520)
"""UIDs of systemd's dynamic users."""
_NOBODY = 65_534
_ALL_USERS = 0xFFFF_FFFF
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_listener(connected: socket.socket, path: str) -> None:
    """Raise ``PermissionError`` where another user may have put the socket at ``path`` that is ``connected``.

    Trusted are oneself, root and accounts of services. Any other listener is trusted only where no third user can
    have made or replaced a part of the path, and the directory of the socket is the listener's or root's.
    """
    listener, own = _uid_of(connected), os.geteuid()
    if listener == own or is_service(listener):
        return
    places = {Path(path).absolute(), Path(path).resolve()}
    if any(place.parent.stat().st_uid not in (listener, 0) for place in places):
        raise _not_trusted(listener, "whose directory that is not")
    for folder, child in (step for place in places for step in _steps(place)):
        about = folder.stat()
        fixed = about.st_mode & stat.S_ISVTX and child.lstat().st_uid in (own, 0)
        if about.st_uid not in (listener, own, 0) or (about.st_mode & _OTHERS_WRITE and not fixed):
            raise _not_trusted(listener, f"and other users may replace what is in {folder}")


def check_port(host: str, port: int, trusted: Collection[int] = (), *, connected: bool = True) -> None:
    """Raise ``PermissionError`` where a user who is not trusted listens on ``port`` of this machine.

    ``host``: if this is no address of this machine, nothing is known, and nothing is raised. Trusted are oneself,
    root, accounts of services, the owner of the directory of the machine's daemon, and ``trusted``.
    ``connected``: a server has accepted a connection, so a port on which no process listens is not trusted either.
    """
    if not _is_ours(host.partition("%")[0]):
        return
    found = listening_users(port, host)
    if connected and not found:
        raise PermissionError(errno.EACCES, "the server that answered has closed the port: not trusted")
    known = {os.geteuid(), _machines_user(), *trusted}
    for listener in found - known:
        if not is_service(listener):
            raise _not_trusted(listener, "who is neither you nor an account of a service")


def is_service(uid: int) -> bool:
    """Return whether this UID is root's or a service account's, by the usual ranges on Linux."""
    return 0 <= uid < _FIRST_PERSON or uid in _DYNAMIC or (uid == _NOBODY and _sees_all_users())


def _sees_all_users() -> bool:
    """Return whether ``nobody`` is such an account: a user namespace shows all outside users as ``nobody``."""
    try:
        first, outside, count = Path("/proc/self/uid_map").read_text().split()[:3]
    except (OSError, ValueError):
        return False
    return (int(first), int(outside), int(count)) == (0, 0, _ALL_USERS)


def _is_ours(host: str) -> bool:
    """Return whether an address belongs to this machine: then it is also its own source address."""
    address = ipaddress.ip_address(host)
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # nothing is sent
            probe.connect((host, 9))
            return ipaddress.ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False


def _machines_user() -> int:
    """Return the owner of the directory of the machine's daemon; -1 if root has created none."""
    try:
        about = MACHINES_FOLDER.lstat()
    except OSError:
        return -1
    made_by_root = stat.S_ISDIR(about.st_mode) and not about.st_mode & _OTHERS_WRITE
    return about.st_uid if made_by_root else -1


def _steps(place: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each directory above ``place`` with the rest of the path."""
    yield from zip(place.parents, (place, *place.parents), strict=False)


def _uid_of(connected: socket.socket) -> int:
    """Return the UID of the listening process."""
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(found)
    return int(uid)


def _not_trusted(listener: int, why: str) -> PermissionError:
    return PermissionError(errno.EACCES, f"user {user_name(listener)} listens there, {why}: not trusted")

"""Users that listen on a port of this machine, from the kernel: another user may take a free port."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path

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

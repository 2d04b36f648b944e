"""Which users listen on a port of this machine, by the kernel: a port that was free may be another user's now."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"
_LOOPBACK = "127.0.0.1"


def users_at(table: str, port: int, host: str = _LOOPBACK) -> frozenset[int]:
    """The uids of those whose sockets listen on ``port`` where the address ``host`` reaches them."""
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
    """As ``users_at``, now. Raises ``OSError`` where the kernel does not say."""
    tables = [_TABLES[0].read_text()]
    if _TABLES[1].exists():  # not where IPv6 is switched off
        tables.append(_TABLES[1].read_text())
    return frozenset[int]().union(*(users_at(table, port, host) for table in tables))


def _reached(host: str) -> frozenset[str]:
    """Addresses whose listener may answer at ``host``, as the tables write them."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        return frozenset((_written(address.packed), _written(bytes(16))))
    mapped = bytes(10) + b"\xff\xff"
    ways = (address.packed, bytes(4), bytes(16), mapped + address.packed, mapped + bytes(4))
    return frozenset(map(_written, ways))


def _written(packed: bytes) -> str:
    """Words of 32 bits in this machine's byte order."""
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))

"""Who listens on a port of this machine, as the kernel tells: one that was free may be another user's by now."""

from __future__ import annotations

from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"
_REACHED = frozenset(
    {
        "0100007F",  # 127.0.0.1
        "00000000",  # all addresses
        "0" * 32,  # all addresses, those of IPv4 as well
        "0000000000000000FFFF00000100007F",  # ::ffff:127.0.0.1
        "0000000000000000FFFF000000000000",  # ::ffff:0.0.0.0
    }
)
"""Addresses whose listener may answer at 127.0.0.1, as the tables write them on little-endian machines."""


def users_at(table: str, port: int) -> frozenset[int]:
    """The uids of those whose sockets listen on ``port`` where 127.0.0.1 reaches them."""
    found = set[int]()
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) < 10 or words[3] != _LISTENS:
            continue
        address, _, at = words[1].rpartition(":")
        if address in _REACHED and int(at, 16) == port:
            found.add(int(words[7]))
    return frozenset(found)


def listening_users(port: int) -> frozenset[int]:
    """As ``users_at``, now. Raises ``OSError`` where the kernel does not say."""
    tables = [_TABLES[0].read_text()]
    if _TABLES[1].exists():  # not where IPv6 is switched off
        tables.append(_TABLES[1].read_text())
    return frozenset[int]().union(*(users_at(table, port) for table in tables))

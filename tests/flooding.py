"""Many connections, each with requests in line, without pause; as a program also for another user.

``python flooding.py USER SOCKET SECONDS HEX`` floods the Unix socket as USER and prints the answers by status.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECTIONS, IN_LINE = 20, 20
_STATUS, _HEAD = re.compile(rb"HTTP/1\.1 ([0-9]{3})"), len(b"HTTP/1.1 200")


def flood(connect: Callable[[], socket.socket], raw: bytes, seconds: float) -> Counter[int]:
    """How many answers of each status come within ``seconds``."""
    end, statuses = time.monotonic() + seconds, Counter[int]()
    threads = [threading.Thread(target=_ask, args=(connect, raw, end, statuses)) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def _ask(connect: Callable[[], socket.socket], raw: bytes, end: float, statuses: Counter[int]) -> None:
    with connect() as connection:
        waiting, tail = 0, b""
        while (left := end - time.monotonic()) > 0:
            if waiting <= 0:
                connection.sendall(raw * IN_LINE)
                waiting += IN_LINE
            connection.settimeout(left)
            try:
                data = connection.recv(1 << 20)
            except TimeoutError:
                return
            assert data, "the connection stays"
            found = _STATUS.findall(tail + data)
            tail = (tail + data)[-_HEAD + 1 :]
            waiting -= len(found)
            statuses.update(map(int, found))


def flood_as(user: str, path: Path, raw: bytes, seconds: float) -> Counter[int]:
    """The same on a Unix socket, by a process of ``user``."""
    program = Path(__file__).read_text()
    argv = [sys.executable, "-I", "-c", program, user, str(path), str(seconds), raw.hex()]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return Counter({int(status): count for status, count in json.loads(done.stdout).items()})


def _to_socket() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[2])
    return connection


if __name__ == "__main__":
    entry = pwd.getpwnam(sys.argv[1])
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    json.dump(flood(_to_socket, bytes.fromhex(sys.argv[4]), float(sys.argv[3])), sys.stdout)

"""Requests at a steady rate over a Unix socket, whether or not answers come."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_REQUEST = b"GET /api/v1/chains?all=true HTTP/1.1\r\nHost: localhost\r\n\r\n"
_CONNECTIONS = 16
_WARM = 1.0
"""Seconds that do not count: connections are made, the other process warms up."""


@dataclass(slots=True)
class Load:
    """What came of it."""

    seconds: list[float] = field(default_factory=list)
    """Each request's, from when it was due."""
    failed: int = 0
    bytes: int = 0
    """Of one answer's body."""
    length: float = 0.0
    """Seconds in which they were sent."""


def run_load(path: str, rate: int, parent: Connection) -> None:
    """Ask until ``parent`` says anything; it is told a ``Load`` then. A process's main function."""
    asyncio.run(_run(path, rate, parent))


async def _run(path: str, rate: int, parent: Connection) -> None:
    due: asyncio.Queue[float] = asyncio.Queue()
    load, loop = Load(), asyncio.get_running_loop()
    askers = [asyncio.create_task(_ask(path, due, load)) for _ in range(_CONNECTIONS)]
    began = loop.time()
    told, sent = False, 0
    while not (told and parent.poll()):
        while began + sent / rate <= loop.time():
            due.put_nowait(began + sent / rate)
            sent += 1
        if not told and loop.time() > began + _WARM:
            load.seconds.clear()
            load.length, told = time.monotonic(), True
            parent.send(None)
        await asyncio.sleep(1 / rate / 2)
    load.length = time.monotonic() - load.length
    for asker in askers:
        asker.cancel()
    parent.send(load)


async def _ask(path: str, due: asyncio.Queue[float], load: Load) -> None:
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
    while True:
        instant = await due.get()
        writer.write(_REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        load.bytes = len(await reader.readexactly(int(size.partition(b":")[2])))
        load.seconds.append(loop.time() - instant)
        load.failed += not head.startswith(b"HTTP/1.1 200 ")

"""TLS for servers whose clients may never finish a handshake: such connections are few and short-lived.

asyncio's own servers take any number of them and wait a minute for each. Nothing has been proved by then, and each
holds a file descriptor, without which a daemon can ask Slurm for nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from mirage.domain.texts import client_network

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    import uvicorn

HANDSHAKE_WITHIN_S = 10.0
MOST_HANDSHAKES = 256
"""Maximum number at the same time, of all clients; beyond it a new one ends the oldest of the largest address."""
MOST_OF_ONE_ADDRESS = 128
"""Beyond, a new one ends the oldest of its address: who is honest is done long before it is the oldest."""
_AT_ONCE = 16
"""Connections taken before others have their turn: few, so that handshakes continue between."""
_PAUSE_S = 1.0


async def serve_bounded(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serve until ``server`` should exit, with TLS where it has a certificate; uvicorn bounds no handshake."""
    config, context = server.config, server.config.ssl
    if context is None:
        await server.serve([listening])
        return

    def protocol() -> asyncio.Protocol:
        made = config.http_protocol_class
        return made(config=config, server_state=server.server_state, app_state=server.lifespan.state)  # type: ignore[call-arg]

    acceptor, config.ssl = TlsAcceptor(listening, context, protocol), None
    serving = asyncio.create_task(server.serve([]))
    while not server.started and not serving.done():
        await asyncio.sleep(0)
    acceptor.start()
    try:
        await serving
    finally:
        acceptor.close()


class TlsAcceptor:
    """Takes connections of a listening socket and hands them over once they are encrypted."""

    def __init__(
        self, listening: socket.socket, context: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        """``protocol`` makes what speaks on one connection."""
        self._listening = listening
        self._context = context
        self._protocol = protocol
        self._tasks: dict[asyncio.Task[None], str] = {}
        """Handshakes and whose they are, the oldest first."""

    def start(self) -> None:
        """Take connections from now on, in the running event loop."""
        self._listening.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more connections, and end the handshakes in progress."""
        asyncio.get_running_loop().remove_reader(self._listening.fileno())
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, peer = self._listening.accept()
            except BlockingIOError:
                return
            except OSError:  # no file descriptor is left
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listening.fileno())
                loop.call_later(_PAUSE_S, self.start)
                return
            self._begin(connection, client_network(str(peer[0])))

    def _begin(self, connection: socket.socket, address: str) -> None:
        count = Counter(self._tasks.values())
        if count[address] >= MOST_OF_ONE_ADDRESS:
            self._end_oldest(address)
        elif count.total() >= MOST_HANDSHAKES:
            self._end_oldest(count.most_common(1)[0][0])
        task = asyncio.get_running_loop().create_task(self._encrypt(connection))
        self._tasks[task] = address
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _end_oldest(self, address: str) -> None:
        oldest = next(task for task, whose in self._tasks.items() if whose == address)
        del self._tasks[oldest]
        oldest.cancel()

    async def _encrypt(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        try:
            await loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_WITHIN_S
            )
        except OSError:  # ssl.SSLError and a handshake that took too long are such
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

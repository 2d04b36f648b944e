"""Servers on loopback that send a byte periodically and never come to an end."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\n"
BEGINNINGS = {
    "mute": (b"", b""),
    "status": (b"HTTP/1.1 200 ", b"O"),
    "interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "header": (OK + b"X-A: ", b"a"),
    "headers": (OK, b"X-A: a\r\n"),
    "chunk-size": (OK + b"Transfer-Encoding: chunked\r\n\r\n5;", b"a"),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "trailer": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: a\r\n"),
    "body": (OK + b"Content-Length: 1000000\r\n\r\n{", b" "),
    "endless": (OK + b"\r\n{", b" "),
}
"""The bytes that each kind of server sends first, and then repeatedly."""
_PAUSE_S = 0.02
_LONGEST_S = 20.0


class Trickling:
    """``outlasted``: no client has left before the server gave up."""

    def __init__(self, listening: socket.socket, first: bytes, then: bytes, pause: float) -> None:
        self.port = listening.getsockname()[1] if listening.family == socket.AF_INET else 0
        self.outlasted = False
        self._listening = listening
        self._first, self._then, self._pause = first, then, pause
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(self._first)
            connection.settimeout(self._pause)
            for _ in range(int(_LONGEST_S / _PAUSE_S)):
                if self._over.is_set() or not _listens(connection):
                    return
                connection.sendall(self._then)
            self.outlasted = True

    def close(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join()


def _listens(connection: socket.socket) -> bool:
    """Whether the client is still there, after a pause."""
    try:
        return bool(connection.recv(1 << 16))
    except TimeoutError:
        return True


@contextlib.contextmanager
def trickling(
    first: bytes, then: bytes, *, path: Path | None = None, pause: float = _PAUSE_S
) -> Iterator[Trickling]:
    """One that runs while the block does, on a port or on a Unix socket."""
    if path is None:
        listening = socket.create_server(("127.0.0.1", 0))
    else:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        listening.listen()
    server = Trickling(listening, first, then, pause)
    try:
        yield server
        assert not server.outlasted, "the client has waited until the server gave up"
    finally:
        server.close()

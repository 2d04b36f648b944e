"""Connections to servers that end within a deadline, with replies of bounded size.

The timeout of a socket restarts with every byte, so a server that sends single bytes could block its reader.
``http.client`` gets a deadline for the whole exchange here, and a size limit for the headers.
"""

from __future__ import annotations

import errno
import http.client
import io
import os
import queue
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from mirage.client.listener import check_listener, check_port

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Self


class Deadline:
    """Deadline of an exchange, ``seconds`` from now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def renew(self) -> None:
        """Restart the timeout, for the next part of a streamed reply."""
        self._end = time.monotonic() + self._seconds

    def left(self) -> float:
        """Return the remaining seconds. Raises ``TimeoutError`` after the deadline."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, "timed out")
        return left


class TimedSocket:
    """A connected socket for ``http.client`` and ``smtplib``, with one deadline for all its operations.

    Used by one thread at a time.
    """

    def __init__(self, plain: socket.socket, deadline: Deadline) -> None:
        self._socket = plain
        self._deadline = deadline
        self._most: int | None = None

    @classmethod
    def to_host(cls, host: str, port: int, deadline: Deadline) -> Self:
        """Connect by TCP to the first address of ``host`` that replies. Raises ``OSError``."""
        trouble: OSError | None = None
        for family, kind, protocol, _, address in _addresses(host, port, deadline):
            try:
                return cls._connected(socket.socket(family, kind, protocol), address, deadline)
            except OSError as error:
                trouble = error
        raise trouble or OSError(f"{host} has no address")

    @classmethod
    def to_path(cls, path: str, deadline: Deadline) -> Self:
        """Connect to a Unix socket. Raises ``OSError``, also if another user may have created it."""
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected = cls._connected(plain, path, deadline)
        try:
            check_listener(plain, path)
        except BaseException:
            plain.close()
            raise
        return connected

    @classmethod
    def _connected(cls, plain: socket.socket, address: Any, deadline: Deadline) -> Self:
        try:
            plain.settimeout(deadline.left())
            plain.connect(address)
        except BaseException:
            plain.close()
            raise
        return cls(plain, deadline)

    def encrypted(self, context: ssl.SSLContext, host: str) -> Self:
        """Return the connection with TLS. Raises ``OSError``, also for an invalid certificate.

        After an error the connection is closed.
        """
        try:
            self._socket.settimeout(self._deadline.left())
            found = type(self)(context.wrap_socket(self._socket, server_hostname=host), self._deadline)
        except BaseException:
            self._socket.close()
            raise
        found.limit(self._most)
        return found

    def peer(self) -> tuple[str, int]:
        """Return address and port of the other end of a TCP connection."""
        host, port, *_ = self._socket.getpeername()
        return str(host), int(port)

    def limit(self, most: int | None) -> None:
        """Read at most ``most`` further bytes."""
        self._most = most

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """See ``socket``; a Unix socket has no such options."""
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(level, name, value)

    def sendall(self, data: Any) -> None:
        """See ``socket``."""
        self._socket.settimeout(self._deadline.left())
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file for reading; the connection stays open until it is closed as well."""
        del mode
        return io.BufferedReader(_Reader(self._socket.makefile("rb", buffering=0), self._before, self._after))

    def close(self) -> None:
        """See ``socket``."""
        self._socket.close()

    def _before(self) -> None:
        self._socket.settimeout(self._deadline.left())

    def _after(self, count: int) -> None:
        if self._most is not None:
            self._most -= count
            if self._most < 0:
                raise OSError(errno.EMSGSIZE, "the reply is too long")


class _Reader(io.RawIOBase):
    def __init__(self, source: io.RawIOBase, before: Callable[[], None], after: Callable[[int], None]) -> None:
        self._source = source
        self._before = before
        self._after = after

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._before()
        count = self._source.readinto(buffer)
        self._after(count or 0)
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


def _addresses(host: str, port: int, deadline: Deadline) -> list[tuple[Any, Any, int, str, Any]]:
    """Resolve a name in a separate thread, because the resolver's timeout may be longer."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=lambda: found.put(_resolved(host, port)), name="resolver", daemon=True).start()
    try:
        answer = found.get(timeout=deadline.left())
    except queue.Empty:
        raise TimeoutError(errno.ETIMEDOUT, f"{os.strerror(errno.ETIMEDOUT)}: the name {host}") from None
    if isinstance(answer, OSError):
        raise answer
    return list(answer)


def _resolved(host: str, port: int) -> Any:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:
        return OSError(f"invalid host name {host!r}")


_LARGEST_HEAD = 1 << 18
"""Maximum bytes of status line and headers, including interim replies."""


class BoundedConnection(http.client.HTTPConnection):
    """Connection for one exchange; ``timeout`` includes everything from connecting to the last byte."""

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        timeout: float,
        path: str = "",
        trusted: Collection[int] | None = None,
        **more: Any,
    ) -> None:
        """``path``: of a Unix socket, which is connected to instead of ``host``.

        ``trusted``: users who may listen at a port of this machine, in addition to those of ``check_port``;
        ``None``: all users may.
        """
        super().__init__(host, port, timeout=timeout, **more)
        self._trusted = trusted
        self.deadline = Deadline(timeout)
        self._path = path
        self._create_connection = self._open

    def getresponse(self) -> http.client.HTTPResponse:
        """See ``HTTPConnection``. Raises ``OSError``, also if the headers are too large."""
        timed: Any = self.sock
        timed.limit(_LARGEST_HEAD)
        response = super().getresponse()
        timed.limit(None)
        return response

    def _open(self, address: tuple[str, int], *_: Any) -> Any:
        if self._path:
            return TimedSocket.to_path(self._path, self.deadline)
        connected = TimedSocket.to_host(*address, self.deadline)
        if self._trusted is not None:
            try:
                check_port(*connected.peer(), self._trusted)
            except BaseException:
                connected.close()
                raise
        return connected


class BoundedTlsConnection(BoundedConnection):
    """``BoundedConnection`` with TLS."""

    default_port = http.client.HTTPS_PORT

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        timeout: float,
        context: ssl.SSLContext | None = None,
        **more: Any,
    ) -> None:
        super().__init__(host, port, timeout=timeout, **more)
        self._context = context or ssl.create_default_context()

    def connect(self) -> None:
        """See ``HTTPConnection``."""
        super().connect()
        plain: Any = self.sock
        host = getattr(self, "_tunnel_host", None) or self.host
        self.sock = plain.encrypted(self._context, host)

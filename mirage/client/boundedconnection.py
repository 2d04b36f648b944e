"""``http.client`` with a deadline for the whole exchange and a size limit for the headers."""

from __future__ import annotations

import http.client
import ssl
from typing import TYPE_CHECKING, Any

from mirage.client.deadline import Deadline, TimedSocket
from mirage.client.listener import check_port

if TYPE_CHECKING:
    from collections.abc import Collection

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

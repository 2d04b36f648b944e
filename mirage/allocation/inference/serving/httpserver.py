"""HTTP servers of gateways and reverse proxies: listen addresses and uvicorn settings."""

from __future__ import annotations

import resource
import socket
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from mirage.boundedhttp import BoundedProtocol
from mirage.domain.errors import ConfigError
from mirage.domain.texts import host_in_url

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport
    from collections.abc import Iterator

    from starlette.types import ASGIApp

_WAITING = 1024
_GRACE = 5
_KEEP_ALIVE = 75
_HEAD_WITHIN = 20.0
_MOST_CONNECTIONS = 8_192
"""Limit for all clients, or half of the process's open files if lower. Beyond it, each new connection closes the
oldest idle one of the client with most idle connections."""


@dataclass(frozen=True, slots=True)
class HttpListenAddress:
    """A listen address, with TLS if a certificate is set."""

    host: str
    port: int
    certificate: str = ""
    key: str = ""

    def bind(self) -> socket.socket:
        """A listening socket. Raises ``ConfigError``."""
        listening = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self.host, self.port))
            listening.listen(_WAITING)
        except OSError as error:
            listening.close()
            raise ConfigError("listen", f"cannot listen on {self.host}:{self.port}: {error.strerror}") from error
        return listening

    def url(self, listening: socket.socket) -> str:
        """The URL under which other machines reach it."""
        anywhere = self.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
        host = socket.gethostname() if anywhere else self.host
        host = host_in_url(host)
        return f"{'https' if self.certificate else 'http'}://{host}:{listening.getsockname()[1]}"


class GuardedProtocol(BoundedProtocol):
    """A client's connection, with a limit on the time and the length of a request's head."""

    longest_headers = 64 << 10
    _patience: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start the timer: a client that sends nothing is disconnected."""
        super().connection_made(transport)
        self.make_room(most_connections())
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Data of one request, or of several."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.in_headers or self._unattended():
            self._watch()
        else:
            self.rest()

    def _unattended(self) -> bool:
        """Whether no request is being answered or received."""
        idle = self.cycle is None or self.cycle.response_complete
        return idle and self.timeout_keep_alive_task is None

    def _watch(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(_HEAD_WITHIN / 2, self._watch_on)

    def _watch_on(self) -> None:
        """Check in two steps: after a pause of this process, data that arrived meanwhile is read in between."""
        self._patience = self.loop.call_later(_HEAD_WITHIN / 2, self.transport.close)

    def rest(self) -> None:
        """Stop the timer, because another part waits for further data."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class HttpServer(uvicorn.Server):
    """A server that leaves signals to the process that started it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield


def most_connections() -> int:
    """Largest number of connections of all clients."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MOST_CONNECTIONS, soft // 2)


def allow_connections() -> None:
    """Raise the limit of open files of this process to its maximum: each client needs one file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def make_server(
    app: ASGIApp, listening: HttpListenAddress, connections: type[GuardedProtocol] = GuardedProtocol
) -> HttpServer:
    """A server for a socket of ``listening``. Raises ``ConfigError``."""
    tls: dict[str, Any] = {}
    if listening.certificate:
        tls = {"ssl_certfile": listening.certificate, "ssl_keyfile": listening.key or None}
    config = uvicorn.Config(
        app,
        http=connections,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=_KEEP_ALIVE,
        backlog=_WAITING,
        **tls,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("certificate", f"does not fit its key: {error}") from error
    return HttpServer(config)

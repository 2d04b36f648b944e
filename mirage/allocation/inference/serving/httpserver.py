"""HTTP servers of gateways and fronts: where they listen, and uvicorn as both want it."""

from __future__ import annotations

import resource
import socket
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from mirage.boundedhttp import BoundedProtocol
from mirage.domain.addresses import host_in_url
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport
    from collections.abc import Iterator

    from starlette.types import ASGIApp

_WAITING = 1024
_GRACE = 5
_KEEP_ALIVE = 75
_HEAD_WITHIN = 20.0
_MOST_CONNECTIONS = 8_192
"""Of all clients, or half as many as the process may have open files; beyond, each new one ends the oldest that
asks for nothing, of the client that has most of these."""


@dataclass(frozen=True, slots=True)
class Listening:
    """An address, with TLS where it has a certificate."""

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
            raise ConfigError("listen", f"{self.host}:{self.port} is not available: {error.strerror}") from error
        return listening

    def url(self, listening: socket.socket) -> str:
        """Where others find it."""
        anywhere = self.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
        host = socket.gethostname() if anywhere else self.host
        host = host_in_url(host)
        return f"{'https' if self.certificate else 'http'}://{host}:{listening.getsockname()[1]}"


class GuardedProtocol(BoundedProtocol):
    """A client's connection: the head of a request is to come before long, and is not to be of any length."""

    longest_headers = 64 << 10
    _patience: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Who says nothing at all waits for nothing."""
        super().connection_made(transport)
        self.make_room(most_connections())
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self.rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a request, or several."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.in_headers or self._unattended():
            self._watch()
        else:
            self.rest()

    def _unattended(self) -> bool:
        """Neither is a request being answered nor the next one waited for."""
        idle = self.cycle is None or self.cycle.response_complete
        return idle and self.timeout_keep_alive_task is None

    def _watch(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(_HEAD_WITHIN / 2, self._watch_on)

    def _watch_on(self) -> None:
        """In two halves: after a pause of this process what has come meanwhile is read in between."""
        self._patience = self.loop.call_later(_HEAD_WITHIN / 2, self.transport.close)

    def rest(self) -> None:
        """Another user waits for what is to come."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class HttpServer(uvicorn.Server):
    """Signals are for whoever has started it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


def most_connections() -> int:
    """Of all clients."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MOST_CONNECTIONS, soft // 2)


def allow_connections() -> None:
    """As many files as this process may have open at most: each client is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def make_server(
    app: ASGIApp, listening: Listening, connections: type[GuardedProtocol] = GuardedProtocol
) -> HttpServer:
    """To be served on a socket of ``listening``. Raises ``ConfigError``."""
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
        raise ConfigError("certificate", f"it cannot be used with its key: {error}") from error
    return HttpServer(config)

"""HTTP servers of gateways and fronts: where they listen, and uvicorn as both want it."""

from __future__ import annotations

import resource
import socket
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport
    from collections.abc import Iterator

    from starlette.types import ASGIApp

_WAITING = 1024
_GRACE = 5
_KEEP_ALIVE = 75
_HEAD_WITHIN = 20.0
_LONGEST_HEAD = 64 << 10


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
            raise ConfigError("listen", f"{self.host}:{self.port} cannot be had: {error.strerror}") from error
        return listening

    def url(self, listening: socket.socket) -> str:
        """Where others find it."""
        anywhere = self.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
        host = socket.gethostname() if anywhere else self.host
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.certificate else 'http'}://{host}:{listening.getsockname()[1]}"


class GuardedProtocol(HttpToolsProtocol):
    """A client's connection: the head of a request is to come before long, and is not to be of any length."""

    def __init__(self, *args: Any, **more: Any) -> None:
        """As uvicorn makes it."""
        super().__init__(*args, **more)
        self._in_head = True
        self._head = 0
        """Bytes of it that have come, in all pieces but the last."""
        self._patience: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Who says nothing at all waits for nothing."""
        super().connection_made(transport)
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
        if self._in_head:
            self._head += len(data)
        if self._head > _LONGEST_HEAD:
            self.send_400_response(f"The head of a request has at most {_LONGEST_HEAD} bytes.")
        elif self._in_head or self._unattended():
            self._watch()
        else:
            self.rest()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head ends."""
        self.end_head()
        super().on_headers_complete()

    def end_head(self) -> None:
        """The rest is somebody else's to wait for."""
        self._in_head, self._head = False, 0

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
        """Somebody else waits for what is to come."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class HttpServer(uvicorn.Server):
    """Signals are for whoever has started it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


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

"""HTTP servers of gateways and fronts: where they listen, and uvicorn as both want it."""

from __future__ import annotations

import socket
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

_WAITING = 1024
_GRACE = 5
_KEEP_ALIVE = 75


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


class HttpServer(uvicorn.Server):
    """Signals are for whoever has started it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


def make_server(app: ASGIApp, listening: Listening) -> HttpServer:
    """To be served on a socket of ``listening``. Raises ``ConfigError``."""
    tls: dict[str, Any] = {}
    if listening.certificate:
        tls = {"ssl_certfile": listening.certificate, "ssl_keyfile": listening.key or None}
    config = uvicorn.Config(
        app,
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

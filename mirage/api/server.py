"""The server: one worker in a thread of the daemon, on a Unix socket that everybody on the machine may open."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn

from mirage.api.access.peer import PeerProtocol
from mirage.api.app import create_app
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.api.port import ApiService

_LOG = logging.getLogger(__name__)

_LONGEST_PATH = 107
_START = 10.0
_STOP = 5.0


class ApiServer:
    """Serves ``service`` on the socket ``path`` between ``start`` and ``stop``."""

    def __init__(self, service: ApiService, path: Path) -> None:
        self._service = service
        self._path = path
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen, in a thread of its own; callers are answered when it returns.

        Raises ``ConfigError`` where the socket cannot be made, or a server listens there already.
        """
        self._socket = _listen(self._path)
        config = uvicorn.Config(
            create_app(self._service),
            http=PeerProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer what is being asked, for a second, then close and remove the socket. May be called twice."""
        if self._server is None or self._thread is None or self._socket is None:
            return
        self._server.should_exit = True
        self._thread.join(_STOP)
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self._server = self._thread = self._socket = None

    @property
    def running(self) -> bool:
        """Whether it answers."""
        return self._thread is not None and self._thread.is_alive()

    def _serve(self) -> None:
        """The thread: whatever happens here must not reach the loop."""
        assert self._server is not None
        assert self._socket is not None
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            _LOG.exception("the interface on %s has ended; the loop goes on without it", self._path)


def _listen(path: Path) -> socket.socket:
    if len(str(path)) > _LONGEST_PATH:
        raise ConfigError("api.socket", f"{path}: a socket's path has at most {_LONGEST_PATH} characters")
    _clear(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        path.chmod(0o666)  # the kernel says who calls: everybody may
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise ConfigError("api.socket", f"{path} cannot be made: {error.strerror}") from error
    return listening


def _clear(path: Path) -> None:
    """Remove the socket of a server that is no more. Raises ``ConfigError`` where one answers."""
    if not path.is_socket():
        if path.exists():
            raise ConfigError("api.socket", f"{path} is there already and is no socket; name another place")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise ConfigError("api.socket", f"another server listens on {path}")

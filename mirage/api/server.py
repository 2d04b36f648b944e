"""The server: a thread of the daemon that listens on a Unix socket open to all users of the machine.

The same application also listens at a network address, if configured.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import uvicorn
import uvloop

from mirage.api.access.auditing import AuditWriter
from mirage.api.access.caller import Caller
from mirage.api.access.protocol import PeerProtocol
from mirage.api.app import create_app
from mirage.api.listening import AddressTaken, log_validity, unusable_certificate
from mirage.api.routes.account import login_link
from mirage.domain.errors import ConfigError
from mirage.tlshandshake import serve_bounded

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI

    from mirage.api.access.caller import Scope
    from mirage.api.listening import Listening
    from mirage.api.port import ApiService

_LOG = logging.getLogger(__name__)

_LONGEST_PATH = 107
_STOP = 5.0
_SWITCH = 0.0005
"""Switch interval of Python threads, in seconds. With Python's default of 5 ms, requests and the loop would wait
for each other for that time at each step."""


class ApiServer:
    """Serves ``service`` on the socket ``path``, and on a network address, between ``start`` and ``stop``.

    Another process may take the port while no daemon listens there. The socket still works then, and ``reach_out``
    retries the network address.
    """

    def __init__(self, service: ApiService, path: Path, listening: Listening | None = None) -> None:
        self._ending = threading.Event()
        self.service = replace(service, url=lambda: service.url() or self.url, ending=self._ending.is_set)
        self._path = path
        self._listening = listening
        self._sockets: list[socket.socket] = []
        self._servers: list[uvicorn.Server] = []
        self._thread: threading.Thread | None = None
        self._audit: AuditWriter | None = None
        self._app: FastAPI | None = None
        self._network: socket.socket | None = None
        self._missed = ""
        """Why there is no network address now, as logged."""
        self._running: _Running | None = None

    def start(self) -> None:
        """Listen, in a separate thread; the server is ready on return.

        Raises ``ConfigError`` if an address is unusable, or if a server already listens on the socket.
        """
        self._ending.clear()
        if self.service.audit is not None:
            self._audit = AuditWriter(self.service.audit)
        self._app = create_app(self.service, self._audit)
        self._add(_listen(self._path), self._app, {"http": PeerProtocol, "proxy_headers": False})
        try:
            if self._listening is not None and self._listening.certificate:
                log_validity(self._listening.certificate)
            self._add_network()
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)
        sys.setswitchinterval(_SWITCH)
        self._thread.start()

    def reach_out(self) -> bool:
        """Retry a network address that was not available; return whether it is now.

        Call it while the server runs. Raises as ``start`` does.
        """
        running = self._running
        if running is None or self._network is not None or not self._add_network():
            return False
        running.add(self._servers[-1], self._sockets[-1])
        return True

    def stop(self) -> None:
        """Finish requests for one second, then close and remove the socket. May be called twice.

        On return, waiting audit entries are in the database or in the log.

        Requests that wait for an event get a response immediately.
        """
        self._ending.set()
        for server in self._servers:
            server.should_exit = True
        if self.service.feed is not None:
            self.service.feed.close()
        if self._thread is not None:
            self._thread.join(_STOP)
        self._close()
        if self._audit is not None:
            self._audit.close(_STOP)

    @property
    def running(self) -> bool:
        """Whether the server thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def visible(self) -> bool:
        """Whether clients can find the socket."""
        return self._thread is not None and self._path.exists()

    def hide(self) -> None:
        """Remove the socket's file: no client connects any more, and those connected get their replies."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    @property
    def requests(self) -> int:
        """Number of requests so far."""
        return sum(server.server_state.total_requests for server in self._servers)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return sum(len(server.server_state.connections) for server in self._servers)

    @property
    def url(self) -> str:
        """URL on the network; empty without a network address."""
        if self._listening is None or self._missed:
            return ""
        bound = self._listening.port if self._network is None else self._network.getsockname()[1]
        return replace(self._listening, port=bound).url

    def login_link(self, name: str, scope: Scope) -> str:
        """Return a single-use login link for this user. Raises ``ConfigError`` without a network address."""
        return login_link(self.service.gate, self.service.url(), Caller(name, scope))

    def _add_network(self) -> bool:
        """Return whether it listens at the network address; logs the reason once if not."""
        if self._listening is None or self._app is None:
            return False
        try:
            listening = self._listening.bind()
        except AddressTaken as error:
            if self._missed != (missed := str(error)):
                text = "event=network_address_missing reason=%r"
                _LOG.error(text, f"{missed}; the socket works, and the daemon retries this address")
            self._missed = missed
            return False
        self._add(listening, self._app, self._listening.options())
        self._network, self._missed = listening, ""
        return True

    def _add(self, listening: socket.socket, app: FastAPI, options: dict[str, Any]) -> None:
        """Raises ``ConfigError`` for an unusable certificate, and then closes the socket."""
        config = uvicorn.Config(
            app,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
            server_header=False,
            **options,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            listening.close()
            raise unusable_certificate(error) from error
        self._sockets.append(listening)
        self._servers.append(uvicorn.Server(config))

    def _close(self) -> None:
        if self._sockets:
            self.hide()
        for listening in self._sockets:
            listening.close()
        self._sockets, self._servers, self._thread = [], [], None
        self._network, self._running = None, None

    def _serve(self) -> None:
        """Run the thread; its errors must not reach the loop."""
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve_all())
        except Exception:
            _LOG.exception("event=api_server_ended socket=%s text=%r", self._path, "the loop continues without it")

    async def _serve_all(self) -> None:
        """Serve all addresses; end all when one ends, since the daemon restarts them together."""
        running = _Running()
        for server, listening in zip(self._servers, self._sockets, strict=True):
            running.serve(server, listening)
        self._running = running
        try:
            await running.first_end()
        finally:
            for server in self._servers:
                server.should_exit = True
            await running.all_ends()


class _Running:
    """The servers of one event loop; another thread may add one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def serve(self, server: uvicorn.Server, listening: socket.socket) -> None:
        """Start a server; for the event loop's thread."""
        task = self._loop.create_task(serve_bounded(server, listening))
        task.add_done_callback(lambda _: self._ended.set())
        self._tasks.append(task)

    def add(self, server: uvicorn.Server, listening: socket.socket) -> None:
        """Start a server from any other thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self.serve, server, listening)

    async def first_end(self) -> None:
        """Return as soon as one of them has ended."""
        await self._ended.wait()

    async def all_ends(self) -> None:
        """Wait until all have ended; raises the error of any of them."""
        await asyncio.gather(*self._tasks)


def check_socket(path: Path, made: Path) -> None:
    """Raise ``ConfigError`` if no socket can be created at ``path``; a running server there is no error.

    ``made``: a directory that will exist.
    """
    _check_path(path)
    directory = path.parent
    if directory != made and not (directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)):
        raise ConfigError("api.socket", f"{path} cannot be created: {directory} is not a writable directory")


def _check_path(path: Path) -> None:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ConfigError("api.socket", f"{path}: a socket's path has at most {_LONGEST_PATH} bytes")
    if path.exists() and not path.is_socket():
        raise ConfigError("api.socket", f"{path} exists and is not a socket; choose another path")


def _listen(path: Path) -> socket.socket:
    _check_path(path)
    _clear(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        path.chmod(0o666)  # open to all users: the kernel identifies the caller
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise ConfigError("api.socket", f"{path} cannot be created: {error.strerror}") from error
    return listening


def _clear(path: Path) -> None:
    """Remove the socket of a dead server. Raises ``ConfigError`` if a server answers."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise ConfigError("api.socket", f"another server listens on {path}")

"""The server: in a thread of the daemon, on a Unix socket that everybody on the machine may open, and if wanted
at a network address too. One application behind both.
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

from mirage.api.access.auditwriter import AuditWriter
from mirage.api.access.caller import Caller
from mirage.api.access.protocol import PeerProtocol
from mirage.api.app import create_app
from mirage.api.certificate import log_validity
from mirage.api.listening import unusable_certificate
from mirage.api.routes.tokens import login_link
from mirage.domain.errors import ConfigError
from mirage.tlshandshake import serve_bounded

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI

    from mirage.api.access.scope import Scope
    from mirage.api.listening import Listening
    from mirage.api.port import ApiService

_LOG = logging.getLogger(__name__)

_LONGEST_PATH = 107
_STOP = 5.0
_SWITCH = 0.0005
"""Seconds after which threads that want to run take turns. By Python's own 5 ms a request waits so long for the
loop at each step, and the loop for a request after each look at a file."""


class ApiServer:
    """Serves ``service`` on the socket ``path``, and on a network address, between ``start`` and ``stop``."""

    def __init__(self, service: ApiService, path: Path, listening: Listening | None = None) -> None:
        self._ending = threading.Event()
        self.service = replace(service, url=lambda: service.url() or self.url, ending=self._ending.is_set)
        self._path = path
        self._listening = listening
        self._sockets: list[socket.socket] = []
        self._servers: list[uvicorn.Server] = []
        self._thread: threading.Thread | None = None
        self._audit: AuditWriter | None = None

    def start(self) -> None:
        """Listen, in a thread of its own; callers are answered when it returns.

        Raises ``ConfigError`` where an address cannot be had, or a server listens there already.
        """
        self._ending.clear()
        if self.service.audit is not None:
            self._audit = AuditWriter(self.service.audit)
        app = create_app(self.service, self._audit)
        self._add(_listen(self._path), app, {"http": PeerProtocol, "proxy_headers": False})
        if self._listening is not None:
            if self._listening.certificate:
                log_validity(self._listening.certificate)
            try:
                self._add(self._listening.bind(), app, self._listening.options())
            except BaseException:
                self._close()
                raise
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)
        sys.setswitchinterval(_SWITCH)
        self._thread.start()

    def stop(self) -> None:
        """Answer what is being asked, for a second, then close and remove the socket. May be called twice.

        Audit lines that wait are on disk, or in the log, when it returns.

        Requests that wait for something to happen are answered at once: nothing has happened.
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
        """Whether it answers."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def url(self) -> str:
        """Where browsers find it on the network; empty: nowhere."""
        if self._listening is None:
            return ""
        bound = self._sockets[-1].getsockname()[1] if len(self._sockets) > 1 else self._listening.port
        return replace(self._listening, port=bound).url

    def login_link(self, name: str, scope: Scope) -> str:
        """A link that logs a browser in, once, as this user. Raises ``ConfigError`` without a network address."""
        return login_link(self.service.gate, self.service.url(), Caller(name, scope))

    def _add(self, listening: socket.socket, app: FastAPI, options: dict[str, Any]) -> None:
        self._sockets.append(listening)
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
            raise unusable_certificate(error) from error
        self._servers.append(uvicorn.Server(config))

    def _close(self) -> None:
        if self._sockets:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
        for listening in self._sockets:
            listening.close()
        self._sockets, self._servers, self._thread = [], [], None

    def _serve(self) -> None:
        """The thread: whatever happens here must not reach the loop."""
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve_all())
        except Exception:
            _LOG.exception("the interface on %s has ended; the loop goes on without it", self._path)

    async def _serve_all(self) -> None:
        """All addresses, or none: the daemon sets them up again together."""
        pairs = zip(self._servers, self._sockets, strict=True)
        tasks = [asyncio.create_task(serve_bounded(server, listening)) for server, listening in pairs]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for server in self._servers:
                server.should_exit = True
            await asyncio.gather(*tasks)


def check_socket(path: Path, made: Path) -> None:
    """Raise ``ConfigError`` where no socket can be at ``path``; a server may answer there.

    ``made``: a directory that will be there.
    """
    _check_path(path)
    directory = path.parent
    if directory != made and not (directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)):
        raise ConfigError("api.socket", f"{path} cannot be made: {directory} is no directory that can be written")


def _check_path(path: Path) -> None:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ConfigError("api.socket", f"{path}: a socket's path has at most {_LONGEST_PATH} bytes")
    if path.exists() and not path.is_socket():
        raise ConfigError("api.socket", f"{path} is there already and is no socket; name another place")


def _listen(path: Path) -> socket.socket:
    _check_path(path)
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
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise ConfigError("api.socket", f"another server listens on {path}")

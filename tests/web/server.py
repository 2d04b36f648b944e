"""The web UI on a loopback port, for given callers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import uvicorn

from mirage.api.access.protocol import Peer
from mirage.api.app import create_app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seeded import SeededLoop
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirage.api.port import ApiService

ADMIN = Peer(0, "root")


def opened_by(app: ASGIApp, peer: Peer) -> ASGIApp:
    """The application as ``peer`` sees it on the daemon's socket."""

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        scope["mirage.peer"] = peer
        await app(scope, receive, send)

    return known


@contextlib.contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """The application's address while it is served."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextlib.contextmanager
def seeded(loop: SeededLoop, peer: Peer = ADMIN, service: ApiService | None = None) -> Iterator[str]:
    """The address of the page on a seeded loop that executes commands."""
    thread = loop.thread()
    thread.start()
    try:
        with serving(opened_by(create_app(service or loop.service()), peer)) as address:
            yield address
            loop.feed.close()
    finally:
        loop.ended.set()
        thread.join()
        loop.store.close()

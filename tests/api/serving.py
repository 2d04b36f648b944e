"""A second server over the same loop, which knows more of the daemon than the first."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirage.api.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import World


@contextmanager
def serving(world: World, **fields: Any) -> Iterator[World]:
    """``world`` with these fields of its service replaced, on a separate socket."""
    service, path = replace(world.service, **fields), world.socket.with_suffix(".more.sock")
    server = ApiServer(service, path)
    server.start()
    try:
        yield replace(world, socket=path, service=service)
    finally:
        server.stop()

"""Waiting by repeated checks of a condition."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from onehost.errors import TestbedError

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD_S = 0.05


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return as soon as ``condition`` holds; raises ``TestbedError`` naming ``what`` after ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise TestbedError(f"timed out after {timeout_s:.0f} s waiting for {what}")
        time.sleep(PERIOD_S)


def listens(port: int) -> bool:
    """Whether a process on this machine accepts connections to a TCP port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True

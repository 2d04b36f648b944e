"""Input to and output from a process of a user; only a bounded part of the output is kept."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_PIECE = 65_536


class TooMuch(Exception):
    """The process printed more than was allowed."""


def converse(process: subprocess.Popen[bytes], said: bytes, timeout: float, most: int) -> tuple[bytes, bytes]:
    """Return stdout and stderr up to their end, after ``said`` on stdin; ``timeout`` in seconds.

    Raises ``TimeoutError``, and ``TooMuch`` after ``most`` bytes on either of them; it may run on then.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.fileno(), process.stderr.fileno()
    printed = {out: bytearray(), err: bytearray()}
    left, end = memoryview(said), time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for pipe in printed:
            selector.register(pipe, selectors.EVENT_READ)
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            for key, _ in selector.select(_left(end)):
                if key.fileobj is process.stdin:
                    left = left[_written(key.fd, left) :]
                    if left:
                        continue
                    selector.unregister(process.stdin)
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.close()
                    continue
                piece = os.read(key.fd, _PIECE)
                if not piece:
                    selector.unregister(key.fileobj)
                    continue
                kept = printed[key.fd]
                kept += piece
                if len(kept) > most:
                    raise TooMuch
    return bytes(printed[out]), bytes(printed[err])


def _left(end: float) -> float:
    """Seconds until ``end``. Raises ``TimeoutError``."""
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _written(descriptor: int, content: memoryview) -> int:
    """How many bytes were written; all of them once the reader has closed its end."""
    try:
        return os.write(descriptor, content[:_PIECE])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(content)

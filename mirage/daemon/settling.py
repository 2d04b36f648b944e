"""Between start and steady work."""

from __future__ import annotations

import gc


def settle() -> None:
    """What the start has made stays as long as the process: the garbage collector need not look through it again.

    It stops all threads while it looks, some tenth of a second each time, and requests wait as long.
    """
    gc.unfreeze()  # what an earlier term of leadership made may go
    gc.collect()
    gc.freeze()

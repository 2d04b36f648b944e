"""Between start and steady work."""

from __future__ import annotations

import gc


def settle() -> None:
    """Freeze the objects of the start, which live as long as the process, for the garbage collector.

    It stops all threads while it looks, some tenth of a second each time, and requests wait as long.
    """
    gc.unfreeze()  # what an earlier term of leadership made may go
    gc.collect()
    gc.freeze()

"""Supervision of worker processes."""

from __future__ import annotations

import os
from multiprocessing import parent_process
from threading import Thread


def leave_with_parent() -> None:
    """End this process when its parent has ended, for any reason.

    A worker whose parent was killed would otherwise wait for work indefinitely.
    """
    Thread(target=_wait_and_leave, daemon=True).start()


def _wait_and_leave() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

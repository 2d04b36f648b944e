"""Starts this interpreter as a process that imports nothing from its working directory.

``python -m`` and ``python -c`` look for every module in the working directory first. A user who may write there,
as all users may in ``/tmp``, could run code in the account that starts the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAFE = "PYTHONSAFEPATH"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def own_python(*words: str) -> list[str]:
    """The command of this interpreter with these arguments; it uses ``PYTHONPATH`` if this process does."""
    named = {Path(place).resolve() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place}
    isolated = named - {Path(place).resolve() for place in sys.path}
    return [sys.executable, "-EP" if isolated else "-P", *words]


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends. Raises ``OSError``."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


def spawning() -> SpawnContext:
    """Where worker processes come from: started afresh, as forking a process that has threads is not safe."""
    with _safe_path():
        resource_tracker.ensure_running()
    return _Spawning()


@contextmanager
def _safe_path() -> Iterator[None]:
    """``multiprocessing`` builds its command lines itself, so a variable takes the place of ``-P``.

    For a moment only: other programs that this process starts may import modules of their directories.
    """
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE]
        else:
            os.environ[_SAFE] = before


class _Worker(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - the standard library's name
        with _safe_path():
            return SpawnProcess._Popen(process_obj)


class _Spawning(SpawnContext):
    Process = _Worker

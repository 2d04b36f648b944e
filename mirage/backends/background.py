"""Work beside the daemon: a process of least priority, in a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_LOOK_EVERY = 1.0
_GRACE = 10.0


def run_aside(argv: Sequence[str], folder: Path, log: Path, stopped: Callable[[float], bool]) -> int | None:
    """Run a command in ``folder`` to its end; what it says is in ``log``. Returns its exit status.

    ``None``: it was ended, with all its children, because ``stopped`` said so, which waits for so many seconds.
    """
    with log.open("wb") as said:
        process = subprocess.Popen(  # noqa: S603 - a list of words, by this program; no shell reads them
            ["/usr/bin/env", "nice", "-n", "19", *argv],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                if stopped(_LOOK_EVERY):
                    return None
        finally:
            _end(process)
    return process.returncode


def last_line(log: Path) -> str:
    """The last words of a command."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

"""Background work: a process of lowest priority in a separate session, which ends with the daemon.

``python -m mirage.backends.background PARENT WORDS`` becomes the command WORDS with least priority, which ends
with its parent: a daemon that is killed cannot end what it has started; the kernel does, whatever the command is.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.ownprocess import end_with_parent, own_python

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LITTLE = 1 << 16
"""Bytes free on a file system that counts as full."""
_LOOK_EVERY = 1.0
_GRACE = 10.0
_NO_MEMORY = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory", "Unable to allocate")
_LEAST = 19
_ENDED_FIRST = "900"
"""Where memory runs out, the kernel ends this process before the daemon."""


def run_aside(
    argv: Sequence[str], folder: Path, log: Path, stopped: Callable[[float], bool], memory: int = 0
) -> int | None:
    """Run a command in ``folder`` to its end; what it says is in ``log``. Returns its exit status.

    ``memory``: bytes of data that each of its processes may have; 0: no bound.
    ``None``: it was ended, with all its children, because ``stopped`` returned true. ``stopped`` waits for the
    number of seconds that it is given.
    """
    with log.open("wb") as said:
        process = subprocess.Popen(  # noqa: S603 - a list of words, by this program; no shell reads them
            own_python("-m", __spec__.name, str(os.getpid()), *argv),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
        try:
            _bound(process.pid, memory)
            while process.poll() is None:
                if stopped(_LOOK_EVERY):
                    return None
        finally:
            _end(process)
    return process.returncode


def ran_out_of_memory(status: int, log: Path) -> bool:
    """Whether that is why the command failed: by its output, or by the kernel's signal."""
    said = last_line(log)
    return status == -signal.SIGKILL or any(words in said for words in _NO_MEMORY)


def last_line(log: Path) -> str:
    """Return the last line of a command's output, or a probable reason why it is empty."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if lines:
        return lines[-1]
    if shutil.disk_usage(log.parent).free < _LITTLE:
        return f"no output: no space left on the file system of {log.parent}"
    return "no output"


def _bound(process_id: int, memory: int) -> None:
    with suppress(OSError):  # it is over already
        Path(f"/proc/{process_id}/oom_score_adj").write_text(_ENDED_FIRST, encoding="ascii")
        if memory:
            resource.prlimit(process_id, resource.RLIMIT_DATA, (memory, memory))


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


def _main() -> None:
    parent, *argv = sys.argv[1:]
    end_with_parent()
    if os.getppid() != int(parent):  # it has ended before it could be watched
        sys.exit(1)
    os.nice(_LEAST)
    os.execvp(argv[0], argv)  # noqa: S606 - a list of words, by this program


if __name__ == "__main__":
    _main()

"""``mirage`` of which the decision loop's thread is recorded: ``touch_recorder.py RECORD HOW`` and mirage's words.

From the first cycle on, each file, process, connection, import and code object that this thread touches becomes
one line of RECORD: a JSON list of the event and its arguments. Audit hooks report what is opened; ``stat`` and its
kin raise no events, so they are wrapped. HOW "spoilt": each submission touches what its chain names, in every way
that is looked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

SILENT = ("stat", "lstat", "access", "readlink", "statvfs")
"""Functions of ``os`` that ask a file system and raise no event."""
WATCHED = (
    *("open", "os.", "shutil.", "glob.", "pathlib.", "tempfile.", "fcntl.", "socket.", "subprocess.", "ctypes."),
    *("import", "exec", "compile", "pickle.", "marshal.", "code.", "sqlite3.", "urllib.", "http.", "mmap."),
    *("builtins.", "cpython.run", "pty.", "syslog.", "ftplib.", "smtplib."),
)
"""How events begin that concern files, processes, the network and code."""


class Recorder:
    """Writes down what one thread does from ``begin`` on."""

    def __init__(self, record: str) -> None:
        self._file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._thread = 0
        self._writing = False
        for name in SILENT:
            if hasattr(os, name):
                self._wrap(name)
        sys.addaudithook(self.heard)

    def begin(self) -> None:
        """Record this thread from now on."""
        self._thread = threading.get_ident()

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook."""
        if self._thread != threading.get_ident() or self._writing or not event.startswith(WATCHED):
            return
        self._writing = True
        line = json.dumps([event, *(_shown(each) for each in arguments)])
        os.write(self._file, line.encode() + b"\n")
        self._writing = False

    def _wrap(self, name: str) -> None:
        original = getattr(os, name)

        def recorded(path: Any, *more: Any, **named: Any) -> Any:
            self.heard(f"os.{name}", (path,))
            return original(path, *more, **named)

        setattr(os, name, recorded)
        for kind in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if original in kind:
                kind.add(recorded)


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return [[_shown(name), _shown(each)] for name, each in value.items()]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value if isinstance(value, int | None) else str(value)


def spoil() -> None:
    """Have each submission touch what the chain names."""
    from mirage.backends.cli_actuator import CliActuator

    submit = CliActuator.submit

    def spoilt(self: CliActuator, request: Any) -> Any:
        place = Path(request.batch.directory)
        marker = place.name
        ways = [
            lambda: place.joinpath("opened").read_bytes(),
            lambda: place.joinpath("asked").is_file(),
            lambda: list(place.iterdir()),
            lambda: place.joinpath("made").mkdir(),
            lambda: subprocess.run(["/bin/true"], cwd=place, check=False),
            lambda: subprocess.run([place / "run"], check=False),
            lambda: socket.socket(socket.AF_UNIX).connect(str(place / "socket")),
            lambda: __import__(f"imported_{marker}"),
            lambda: compile("1", str(place / "compiled"), "eval"),
            lambda: compile("1", "<typed>", "eval"),
        ]
        for way in ways:
            with contextlib.suppress(OSError, ImportError):
                way()
        return submit(self, request)

    CliActuator.submit = spoilt  # type: ignore[method-assign]


def main() -> None:
    """Entry point."""
    record, spoilt = sys.argv[1:3]
    del sys.argv[1:3]
    recorder = Recorder(record)

    from mirage.cli.main import main as mirage
    from mirage.control.loop import ControlLoop

    cycle = ControlLoop.cycle

    def recorded(self: ControlLoop) -> Any:
        recorder.begin()
        return cycle(self)

    ControlLoop.cycle = recorded  # type: ignore[method-assign]
    if spoilt == "spoilt":
        spoil()
    mirage()


if __name__ == "__main__":
    main()

"""Running Slurm's commands: a clean environment, a time limit, bounded output, no process left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.backends import launcher
from mirage.documentreading import decode_foreign
from mirage.domain.errors import ClusterUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


MOST_OUTPUT = 1 << 30
"""Bytes: five million rows of the queue or of accounting."""

_MOST_OF_A_LAUNCH = 1 << 20
"""Bytes of what runs with a user's environment, as ``sbatch`` does: it prints what they like."""
_END_S = 2.0
_SCRIPT = "/dev/fd/3"
_NOT_TAKEN = frozenset((errno.E2BIG, errno.ENAMETOOLONG, errno.EINVAL))
"""Errors of ``execve`` about the arguments and the environment: trying again changes nothing."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Output of a command that has ended."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Its complaints, or what else it printed."""
        return self.err.strip() or self.out.strip()


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """The parts of a user's shell that a command inherits besides environment and standard input."""

    directory: str = "/"
    """Working directory; ``/`` where this cannot be entered."""
    nice: int | None = None
    """Its nice value, where the system permits it; ``None``: this process's."""
    script: bytes = b""
    """A file that it is given by name after its options, followed by ``arguments``; empty: none."""
    arguments: tuple[str, ...] = ()


class ArgumentsRefused(ClusterUnavailable):
    """The system accepts these arguments or this environment for no process: nothing was started."""


class CommandRunner:
    """Slurm's commands for one cluster.

    ``environment`` is all that they see of the outside, such as ``PATH``, ``SLURM_CONF``; ``timeout`` is in real
    seconds, ``most`` the bytes that are read of what one prints.
    """

    def __init__(self, environment: Mapping[str, str], timeout: float = 30.0, most: int = MOST_OUTPUT) -> None:
        self.environment = dict(environment)
        self._timeout = timeout
        self._most = most

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        launch: LaunchSettings | None = None,
    ) -> CommandOutput:
        """Run ``argv`` to its end, in ``environment`` or in the cluster's own, in ``/`` or as ``launch`` says.

        Raises ``ClusterUnavailable`` when it cannot be run, does not end in time or prints too much (it and all
        that it started are then killed) or is killed: in the last three cases it is unknown what it did.
        ``ArgumentsRefused`` where arguments or environment are too long for the system.
        """
        environment = self.environment if environment is None else environment
        path = self.environment.get("PATH", os.defpath)
        program = shutil.which(argv[0], path=path)
        if program is None:
            raise ClusterUnavailable(f"{argv[0]}: not found in PATH={path}; is Slurm installed on this machine?")
        if launch is None:
            process = _start(argv[0], [program, *argv[1:]], environment)
            return self._finish(argv[0], process, stdin, self._most)
        with _Launcher(program, argv, environment, launch) as prepared:
            process = _start(argv[0], prepared.command, os.environ, prepared.descriptors)
            answer = self._finish(argv[0], process, stdin, min(self._most, _MOST_OF_A_LAUNCH))
            prepared.check(argv[0])
        return answer

    def _finish(self, name: str, process: subprocess.Popen[bytes], stdin: bytes, most: int) -> CommandOutput:
        began = time.monotonic()
        try:
            out, err = converse(process, stdin, self._timeout, most)
            process.wait(max(0.0, began + self._timeout - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            raise ClusterUnavailable(f"{name}: no answer within {self._timeout:g} s") from None
        except TooMuch:
            raise ClusterUnavailable(f"{name}: more than {most >> 20} MiB of output") from None
        finally:
            _end(process)
        if process.returncode < 0:
            signal_name = signal.Signals(-process.returncode).name
            raise ClusterUnavailable(f"{name}: killed by {signal_name}: {decode_foreign(err).strip()}")
        return CommandOutput(process.returncode, decode_foreign(out), decode_foreign(err))


class _Launcher:
    """The command line of ``launcher.py`` and its files, which are in memory and go with their descriptors."""

    def __init__(
        self, program: str, argv: Sequence[str], environment: Mapping[str, str], launch: LaunchSettings
    ) -> None:
        script = launch.script
        words = [*argv, *((_SCRIPT, *launch.arguments) if script else ())]
        variables = [f"{name}={value}" for name, value in environment.items()]
        nice = "" if launch.nice is None else str(launch.nice)
        order = [program, launch.directory, nice, str(len(words)), *words, *variables]
        if any("\0" in text for text in order):
            raise ArgumentsRefused(f"{argv[0]}: cannot be run: an argument or a variable holds a NUL")
        if any("=" in name or not name for name in environment):
            raise ArgumentsRefused(f"{argv[0]}: cannot be run: a variable has no name, or one with '='")
        self._order = _file(b"\0".join(_encoded(text) for text in order))
        self._script = _file(script) if script else -1
        self.descriptors = tuple(number for number in (self._order, self._script) if number >= 0)
        self.command = [sys.executable, "-I", "-S", launcher.__file__, str(self._order), str(self._script)]

    def __enter__(self) -> _Launcher:
        return self

    def __exit__(self, *error: object) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)

    def check(self, name: str) -> None:
        """Raise ``ClusterUnavailable``, or ``ArgumentsRefused``, where the command could not be run."""
        report = os.pread(self._order, 8, 0)
        if report.startswith(b"!"):
            number = int(report[1:])
            raise _cannot_run(name, OSError(number, os.strerror(number)))


def _start(
    name: str, command: Sequence[str], environment: Mapping[str, str], descriptors: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - no shell; the program is found in our own PATH
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
            pass_fds=descriptors,
        )
    except (OSError, ValueError) as error:
        raise _cannot_run(name, error) from error


def _cannot_run(name: str, error: OSError | ValueError) -> ClusterUnavailable:
    refused = isinstance(error, ValueError) or error.errno in _NOT_TAKEN
    return (ArgumentsRefused if refused else ClusterUnavailable)(f"{name}: cannot be run: {error}")


def _file(content: bytes) -> int:
    """A file in memory with this content, to be read from its start."""
    descriptor = os.memfd_create("mirage")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _end(process: subprocess.Popen[bytes]) -> None:
    """Take back the pipes; a command that has not ended is killed first, with all that it started.

    One that has ended is left alone: its process group may by now be another user's.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

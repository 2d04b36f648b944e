"""Running Slurm's commands: a clean environment, a time limit, no process left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.errors import ClusterUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LAST_WORDS_S = 2.0
# The folder is entered by the child: one that hangs then runs out of time like any other command.
_ENTER = 'cd -- "$1" 2>/dev/null; unset {unknown}; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed before it ended."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Its complaints, or what else it printed."""
        return self.err.strip() or self.out.strip()


class Commands:
    """Slurm's commands for one cluster.

    ``environment`` is all that they see of the outside, such as ``PATH``, ``SLURM_CONF``; ``timeout`` is in real
    seconds.
    """

    def __init__(self, environment: Mapping[str, str], timeout: float = 30.0) -> None:
        self.environment = dict(environment)
        self._timeout = timeout

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        folder: str = "/",
    ) -> Answer:
        """Run ``argv`` to its end, in ``environment`` or in the cluster's own.

        It works in ``folder``, or in ``/`` where that cannot be entered.

        Raises ``ClusterUnavailable`` when it cannot be run, does not end in time (it and all that it started are
        then killed) or is killed: in the last two cases it is unknown what it did.
        """
        process = self._start(argv, self.environment if environment is None else environment, folder)
        try:
            out, err = process.communicate(stdin, self._timeout)
        except subprocess.TimeoutExpired:
            raise ClusterUnavailable(f"{argv[0]}: no answer within {self._timeout:g} s") from None
        finally:
            _end(process)
        if process.returncode < 0:
            name = signal.Signals(-process.returncode).name
            raise ClusterUnavailable(f"{argv[0]}: killed by {name}: {_decoded(err).strip()}")
        return Answer(process.returncode, _decoded(out), _decoded(err))

    def _start(self, argv: Sequence[str], environment: Mapping[str, str], folder: str) -> subprocess.Popen[bytes]:
        path = self.environment.get("PATH", os.defpath)
        program = shutil.which(argv[0], path=path)
        if program is None:
            raise ClusterUnavailable(f"{argv[0]}: not found in PATH={path}; is Slurm installed on this machine?")
        try:
            return subprocess.Popen(  # noqa: S603 - the shell reads no word of ours; the program is found in our own PATH
                [*_entering(folder, environment), program, *argv[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ClusterUnavailable(f"{argv[0]}: cannot be run: {error}") from error


def _entering(folder: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What begins a command line that is to work in ``folder``; the shell adds nothing to the environment."""
    if folder == "/":
        return ()
    unknown = [name for name in ("OLDPWD", "PWD") if name not in environment]
    return ("/bin/sh", "-c", _ENTER.format(unknown=" ".join(unknown) or "_"), "sh", folder)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Take back the pipes; a command that has not ended is killed first, with all that it started.

    One that has ended is left alone: its process group may by now be somebody else's.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_LAST_WORDS_S)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _decoded(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")

"""Supervisors: a small process that starts a step, outlives the agent and records how the step ended.

An agent that is killed leaves its steps running, and without a parent process their exit codes would be lost. A
supervisor is a shell in a separate session. Its ``$0`` is a path that names the attempt, by which the next agent
finds it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.allocation.engine.steps import EngineRefused, StartedStep, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirage.allocation.engine.steps import Launch

MARK = "MIRAGE_STEP"
"""The environment variable by which all processes of a step are found."""

# Signals are meant for the command. A child does not inherit a trap with an action, but does inherit "ignore".
_BEGINNING = """\
trap : HUP INT QUIT TERM USR1 USR2 ALRM CONT
"$@"
"""
_BRING = written('printf "%s\\n" "$code" >"$0.exit.new" && mv "$0.exit.new" "$0.exit"', "0")
_KEEP = f"""\
{_BEGINNING}\
code=$?
{_BRING}\
exit "$code"
"""
_SHELL = "/bin/sh"
_ZOMBIE = "Z"


class StepSupervisors:
    """Starts supervisors and knows which of them run."""

    def __init__(self) -> None:
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def start(
        self, launch: Launch, argv: Sequence[str], environment: Mapping[str, str], output: Path, directory: str
    ) -> StartedStep:
        """Run ``argv`` under a supervisor and append its output to ``output``. Raises ``EngineRefused``."""
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            with output.open("ab") as sink:
                child = subprocess.Popen(  # noqa: S603 - the owner's own command, which no shell reads
                    [_SHELL, "-c", _KEEP, str(launch.path), *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env=dict(environment) | {MARK: str(launch.path)},
                    cwd=directory,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise EngineRefused(str(error)) from error
        self._children[launch.path] = child
        return StartedStep(launch.key, launch.path, child.pid)

    def living(self, step: StartedStep) -> bool:
        """Whether the supervisor still runs."""
        child = self._children.get(step.path)
        return child.poll() is None if child else _keeps(step.pid, step.path)

    def forget(self, step: StartedStep) -> None:
        """Delete the files of a step, except its output."""
        self._children.pop(step.path, None)

    @staticmethod
    def find(paths: Iterable[Path]) -> dict[Path, int]:
        """Those of these supervisors that run, with their process IDs."""
        wanted = {str(path): path for path in paths}
        found = dict[Path, int]()
        for pid, arguments in _command_lines():
            if (
                len(arguments) > 3
                and arguments[0] == _SHELL
                and arguments[2].startswith(_BEGINNING)
                and arguments[3] in wanted
            ):
                found.setdefault(wanted[arguments[3]], pid)
        return found


def signal_group(pid: int, name: str) -> None:
    """Signal all processes of a supervisor's session except the supervisor, which must record the exit code."""
    number = signal.Signals[f"SIG{name}"]
    for member in _session(pid):
        if member != pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, number)


def leftovers(path: Path) -> list[int]:
    """Processes on this machine that an attempt has left behind, in any session."""
    mark = f"{MARK}={path}".encode()
    return [pid for pid in _processes() if mark in _content(pid, "environ").split(b"\0")]


def kill_leftovers(path: Path) -> bool:
    """Kill these processes; whether there were any."""
    left = [pid for pid in leftovers(path) if pid != os.getpid()]
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(left)


def start_ticks(pid: int) -> int:
    """Start of a process in kernel ticks since the boot; 0 where it does not run."""
    fields = _fields(pid)
    return int(fields[19]) if fields and fields[0] != _ZOMBIE else 0


def boot_id() -> str:
    """ID of the current boot of this machine."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _keeps(pid: int, path: Path) -> bool:
    arguments = _content(pid, "cmdline").split(b"\0") if _is_ours(pid) else []
    return len(arguments) > 3 and arguments[3] == os.fsencode(path) and start_ticks(pid) != 0


def _session(leader: int) -> list[int]:
    return [pid for pid in _processes() if (fields := _fields(pid)) and int(fields[3]) == leader]


def _fields(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` after the name, state first; empty without such a process."""
    return _content(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    for pid in _processes():
        arguments = _content(pid, "cmdline").split(b"\0")
        if len(arguments) > 3:
            yield pid, [os.fsdecode(argument) for argument in arguments]


def _processes() -> list[int]:
    """PIDs of this user: processes of other users may have any command line and any variable."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _is_ours(int(name))]  # noqa: PTH208 - names alone, many


def _is_ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # noqa: PTH116 - of each process, often
    except OSError:
        return False


def _content(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return b""

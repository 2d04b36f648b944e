"""The engine port: start tasks where they are placed, and report how they ended by the files that a step leaves.

The files about an attempt lie next to the supervisor's. Each rank writes ``began`` as it begins, with the
number of ranks where the launcher does not wait for all of them itself. Each rank that has ended with 0 writes
``ended.RANK``. Each signal that the step received leaves ``heard.NUMBER``. A shell around the task's command
writes these files; it gets every signal that the whole step gets, from any sender. It does not record the time
of a signal, because shells run their traps only after the command has ended.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mirage.atomic_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Launch:
    """What an engine needs to start one attempt."""

    key: str
    """Unique within the state directory, such as ``resnet.2``."""
    path: Path
    """Path prefix of the files about it."""
    command: tuple[str, ...]
    ranks: Mapping[str, int]
    """Number of processes on each of its nodes."""
    visible: Mapping[str, Mapping[str, str]]
    """The variables that show a process its devices, for each node."""
    environment: Mapping[str, str]
    """Variables added to the agent's environment."""
    directory: str
    output: Path


@dataclass(frozen=True, slots=True)
class StartedStep:
    """One started attempt: the local process that supervises it, and ends with it."""

    key: str
    path: Path
    pid: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How a step ended."""

    code: int | None
    """Exit code, 128 and more for signals; ``None`` where no process is left that knows it."""
    began: bool
    """Whether the task's command was ever about to run."""
    said: str = ""
    """Message of the launcher; empty without one."""
    failed_nodes: tuple[str, ...] = ()
    """Nodes that are to blame."""
    outside: str = ""
    """What ended it from outside, such as the end of the whole job; else empty."""
    heard: tuple[str, ...] = ()
    """Signals that it received, from any sender."""


class EngineRefused(Exception):
    """A step could not be requested; the text says why."""


class Engine(Protocol):
    """Starts steps and monitors them. No method waits for a task."""

    @property
    def name(self) -> str:
        """Name of the engine, as in ``--engine``."""

    def launch(self, launch: Launch) -> StartedStep:
        """Start it; ``poll`` returns the result. Raises ``EngineRefused``."""

    def poll(self, step: StartedStep) -> Ending | None:
        """How it ended; ``None`` while any of it may still run."""

    def began(self, step: StartedStep) -> float | None:
        """When the task's command was about to run; ``None``: not yet."""

    def signal(self, step: StartedStep, name: str) -> None:
        """Send its processes ``USR1``, ``TERM``, ``KILL``...; does nothing where it has ended."""

    def find(self, wanted: Sequence[tuple[str, Path]]) -> dict[str, StartedStep]:
        """Those of these keys and paths whose steps, started by an earlier agent, still run here."""


_LARGEST_NUMBER = 64
"""Largest size of such a file, in bytes."""
_DEAF_TO = ("KILL", "STOP", "CHLD", "SEGV", "BUS", "FPE", "ILL", "TSTP", "TTIN", "TTOU")
"""Excludes signals that a shell cannot trap, that have another meaning for it, or that a process causes itself."""
_HEARD = {int(each): name for each in signal.Signals if (name := each.name.removeprefix("SIG")) not in _DEAF_TO}

# A child does not inherit a trap with an action: the task's command has its usual signals. The shell itself must
# survive them all, or it would end together with what saves. Its variables begin with "_": a variable of the same
# name in the task's environment would be changed for the task as well.
LISTEN = f"""\
for _heard in {" ".join(map(str, _HEARD))}; do
  trap "( : >\\"\\$MIRAGE_STEP.heard.$_heard\\" ) 2>/dev/null" "$_heard"
done
"""

# These files decide whether a task has succeeded: whatever its umask is, other users must not write to them.
GUARDED = "umask g-w,o-w"


def written(command: str, step: str) -> str:
    """Shell lines that write such a file; ``step``: the variable with the beginning of its name.

    While the file system is full they retry: a result that cannot be written is no failure. A subshell runs the
    command, because a shell ends where a redirection of one of its built-in commands fails.
    """
    return f"""\
while [ -d "${{{step}%/*}}" ] && ! ( {GUARDED}; {command} ) 2>/dev/null; do sleep 1; done
"""


# A signal to the whole step reaches its processes one after another, and this shell perhaps after the end of its
# command.
LINGER = """\
[ "$_code" -le 128 ] && [ -z "$MIRAGE_CHECKPOINT" ] || sleep 1
"""


def file_of(path: Path, ending: str) -> Path:
    """One of the files about an attempt; its name may contain dots."""
    return path.with_name(f"{path.name}.{ending}")


def read_ending(path: Path) -> Ending:
    """How a step ended whose supervisor has ended; without a code where no file shows it.

    An exit code 0 of srun is not enough: srun also returns it when a node fails, even before the step begins.
    """
    began = file_of(path, "began")
    code = _number(file_of(path, "exit"))
    ranks = _number(began) or 0
    if code == 0 and not (
        began.exists() and all(file_of(path, f"ended.{rank}").exists() for rank in range(ranks))
    ):
        code = None
    heard = tuple(name for number, name in _HEARD.items() if file_of(path, f"heard.{number}").exists())
    return Ending(code, began.exists(), heard=heard)


def began_at(path: Path) -> float | None:
    """When its last rank was about to run the task's command; ``None``: no rank was."""
    return _written_at(file_of(path, "began"))


def ended_at(path: Path) -> float | None:
    """When its supervisor recorded the exit code; ``None``: it did not."""
    return _written_at(file_of(path, "exit"))


def _written_at(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _number(file: Path) -> int | None:
    try:
        return int(read_regular(file, _LARGEST_NUMBER, follow_links=False).decode("ascii"))
    except (OSError, ValueError):
        return None

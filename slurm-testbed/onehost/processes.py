"""Daemons by name: started detached, identified by PID and start time, and only these are ended.

The start time guards against a PID that has been given to another process since.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onehost.errors import TestbedError
from onehost.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onehost.layout import Layout
    from onehost.people import Person

END_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon to run: its name in the testbed, user, environment."""

    name: str
    argv: Sequence[str]
    person: Person
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    """Where it accepts connections once it is up."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified by PID and start time."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        now = observe(self.pid)
        return now is not None and now.started == self.started

    def send(self, number: signal.Signals) -> None:
        """Signal it, if it is still the same process."""
        if self.alive():
            os.kill(self.pid, number)


def observe(pid: int) -> Process | None:
    """The process with this PID, ``None`` if it does not exist or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything, spaces included.
    columns = text.rpartition(")")[2].split()
    ended = columns[0] == "Z" and not has_other_threads(pid)
    return None if ended else Process(pid, int(columns[19]))


def has_other_threads(pid: int) -> bool:
    """Whether other threads than the first are left: they keep all files open after the first has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208 - names are enough
    except FileNotFoundError:
        return False


def launch(daemon: Daemon, layout: Layout) -> Process:
    """Start a daemon in a separate session and record it under its name."""
    running = recorded(daemon.name, layout)
    if running:
        raise TestbedError(f"{daemon.name} is already running (process {running.pid})")
    with (layout.log / f"{daemon.name}.out").open("ab") as output:
        child = subprocess.Popen(
            list(daemon.argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=dict(daemon.environment),
            start_new_session=True,
            **daemon.person.identity(),
        )
    process = observe(child.pid)
    if process is None:
        raise TestbedError(f"{daemon.name} ended immediately; see {layout.log}/{daemon.name}.out")
    (layout.run / f"{daemon.name}.pid").write_text(f"{process.pid} {process.started}\n")
    # It outlives this program; without this Popen would warn that its child was not waited for.
    child.returncode = 0
    return process


def recorded(name: str, layout: Layout) -> Process | None:
    """The running process of this name, ``None`` if it does not run."""
    try:
        pid, started = (layout.run / f"{name}.pid").read_text().split()
    except FileNotFoundError:
        return None
    process = Process(int(pid), int(started))
    return process if process.alive() else None


def recorded_names(layout: Layout) -> list[str]:
    """Every daemon that was started and not yet ended, running or not."""
    return sorted(path.stem for path in layout.run.glob("*.pid"))


def end(names: Sequence[str], layout: Layout, number: signal.Signals = signal.SIGTERM) -> None:
    """Signal these daemons, wait until all have ended, forget them. A paused one is resumed to receive it."""
    processes = [process for name in names if (process := recorded(name, layout))]
    for process in processes:
        process.send(number)
        process.send(signal.SIGCONT)
    try:
        wait_until(lambda: not any(p.alive() for p in processes), END_TIMEOUT_S, f"the end of {', '.join(names)}")
    except TestbedError:
        for process in processes:
            process.send(signal.SIGKILL)
        wait_until(lambda: not any(p.alive() for p in processes), END_TIMEOUT_S, f"the end of {', '.join(names)}")
    for name in names:
        (layout.run / f"{name}.pid").unlink(missing_ok=True)

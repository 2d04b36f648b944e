"""The engine port: start tasks where they are placed, and report how they ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

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
class Step:
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

    def launch(self, launch: Launch) -> Step:
        """Start it; ``poll`` returns the result. Raises ``EngineRefused``."""

    def poll(self, step: Step) -> Ending | None:
        """How it ended; ``None`` while any of it may still run."""

    def began(self, step: Step) -> float | None:
        """When the task's command was about to run; ``None``: not yet."""

    def signal(self, step: Step, name: str) -> None:
        """Send its processes ``USR1``, ``TERM``, ``KILL``...; does nothing where it has ended."""

    def find(self, wanted: Sequence[tuple[str, Path]]) -> dict[str, Step]:
        """Those of these keys and paths whose steps, started by an earlier agent, still run here."""

"""The engine port: whatever starts tasks where they are placed, and says how they ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Launch:
    """All that an engine needs to know to start one attempt."""

    key: str
    """Unique within the state directory, such as ``resnet.2``."""
    path: Path
    """Beginning of the names of the files about it."""
    command: tuple[str, ...]
    ranks: Mapping[str, int]
    """How many processes on each of its nodes."""
    visible: Mapping[str, Mapping[str, str]]
    """For each node the variables that show a process its devices there."""
    environment: Mapping[str, str]
    """What is added to the agent's own."""
    directory: str
    output: Path


@dataclass(frozen=True, slots=True)
class Step:
    """One started attempt: the process here that keeps it, and dies with it."""

    key: str
    path: Path
    pid: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How a step ended."""

    code: int | None
    """Exit code, 128 and more for signals; ``None`` where nobody is left who knows."""
    began: bool
    """Whether the task's own program was ever about to run."""
    said: str = ""
    """Words of whatever started it; empty where it had none."""
    failed_nodes: tuple[str, ...] = ()
    """Nodes that are to blame."""
    outside: str = ""
    """Who ended it, where neither it nor we did: the whole job is being ended."""
    heard: tuple[str, ...] = ()
    """Signals that came to it, whoever sent them."""


class EngineRefused(Exception):
    """A step could not even be asked for; the text says why."""


class Engine(Protocol):
    """Starts steps and follows them. No method waits for a task."""

    @property
    def name(self) -> str:
        """As the user names it."""

    def launch(self, launch: Launch) -> Step:
        """Start it; how it went is for ``poll``. Raises ``EngineRefused``."""

    def poll(self, step: Step) -> Ending | None:
        """How it ended; ``None`` while any of it may still run."""

    def began(self, step: Step) -> float | None:
        """When the task's own program was about to run; ``None``: that has not come."""

    def signal(self, step: Step, name: str) -> None:
        """Send its processes ``USR1``, ``TERM``, ``KILL``...; nothing happens where it has ended."""

    def find(self, wanted: Sequence[tuple[str, Path]]) -> dict[str, Step]:
        """Those of these keys and paths of which anything still runs here, started by an earlier agent."""

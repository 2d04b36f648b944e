"""What a journal says, line by line, and how each line is written.

Times are epoch seconds on the clock of the machine that wrote them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mirage.documentfaults import faults_of, reader_of
from mirage.documenttext import parse_json


class Result(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Its own doing: exit code, time limit. Counts against its retries."""
    REFUSED = "refused"
    """It never began: the step was not granted."""
    CHECKPOINTED = "checkpointed"
    """Told to save before its link ends, it ended; what it had done is kept."""
    PREEMPTED = "preempted"
    """Told to save for another task's sake, it ended; what it had done is kept."""
    CUT_OFF = "cut-off"
    """Ended for no fault of its own, by the link's limit mostly; what it had done is lost."""
    NODE_FAILED = "node-failed"
    LOST = "lost"
    """Its link or its agent ended, and nobody knows more."""


@dataclass(frozen=True, slots=True)
class LifeBegan:
    """One run of the agent."""

    at: float
    life: str
    job: int
    """Slurm's job; 0 outside Slurm."""
    restarts: int
    """How often that job was requeued."""
    link: int
    """Of the chain; 0 outside one."""
    host: str
    pid: int
    ticks: int
    """When that process began, as the kernel counts: process ids are used again."""
    boot: str
    engine: str
    source: str
    """The task file."""


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """The devices that this life has, by node: ``(index, kind)``."""

    at: float
    end: float | None
    """When its job ends; ``None``: not known, or never."""
    nodes: dict[str, list[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class Starting:
    """About to be started: written before it is."""

    at: float
    task: str
    attempt: int
    parts: dict[str, list[int]]
    """Indices of its devices on each of its nodes; of none for a task of CPUs alone."""
    share: float


@dataclass(frozen=True, slots=True)
class Started:
    """Its supervisor runs."""

    at: float
    task: str
    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """An earlier life's step was found alive: this life follows it from here on."""

    at: float
    task: str
    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """Told to end."""

    at: float
    task: str
    attempt: int
    why: str
    saves: bool
    """By the signal upon which it saves what it has done."""
    fails: bool = False
    """It is to blame, and has failed."""
    yields: bool = False
    """For the sake of another task."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing of it runs any more."""

    at: float
    task: str
    attempt: int
    result: Result
    code: int | None
    """``None``: not known."""
    why: str
    ran: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The task will not be retried, whatever its retries say."""

    at: float
    task: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeAside:
    """Nothing more is started on a node."""

    at: float
    node: str
    why: str


Run = tuple[str, int, int, str]
"""Model, number of devices, on how many nodes, their kind."""


@dataclass(frozen=True, slots=True)
class SpeedSeen:
    """So much a task did, by its own count, while it ran so next to these."""

    at: float
    task: str
    attempt: int
    run: Run
    beside: list[Run]
    seconds: float
    done: float


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a reader may want to know."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class LifeOver:
    """The agent ends in order; nothing of its own runs any more."""

    at: float
    why: str


Entry = (
    LifeBegan | PoolSeen | Starting | Started | Adopted | Stopping | Ended | GaveUp | NodeAside | SpeedSeen
    | Remark | LifeOver
)  # fmt: skip

_KINDS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: reader_of(kind)
    for kind in (
        LifeBegan, PoolSeen, Starting, Started, Adopted, Stopping, Ended, GaveUp, NodeAside, SpeedSeen, Remark,
        LifeOver,
    )
}  # fmt: skip


def spell(entry: Entry) -> str:
    """One line, without its end."""
    return json.dumps({"entry": type(entry).__name__} | asdict(entry), ensure_ascii=True)


def read(line: str) -> Entry:
    """Raises ``ValueError`` where it is none."""
    document = parse_json(line)
    name = document.pop("entry", None) if isinstance(document, dict) else None
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError("is no entry of a journal")
    try:
        entry: Entry = kind.validate_python(document, extra="forbid")
    except ValidationError as error:
        raise ValueError(f"{name}: {faults_of(error)[0]}") from None
    return entry

"""The entries of a journal, and how each is written as a line.

Times are epoch seconds on the clock of the machine that wrote them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mirage.documentreading import faults_of, parse_json, reader_of


class AttemptResult(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The task failed by itself: exit code or time limit. Counts against its retries."""
    REFUSED = "refused"
    """It never began: Slurm or the system rejected the step."""
    CHECKPOINTED = "checkpointed"
    """It was asked to save before its link ends, and ended; its work is kept."""
    PREEMPTED = "preempted"
    """It was asked to save because another task preempts it, and ended; its work is kept."""
    CUT_OFF = "cut-off"
    """It ended without a failure of the task, mostly by the link's time limit; its work is lost."""
    NODE_FAILED = "node-failed"
    LOST = "lost"
    """Its link or its agent ended; nothing more is known."""


@dataclass(frozen=True, slots=True)
class LifeBegan:
    """One run of the agent."""

    at: float
    life: str
    job: int
    """ID of the Slurm job; 0 outside Slurm."""
    restarts: int
    """How often Slurm has requeued that job."""
    link: int
    """Number of the link in its chain; 0 outside a chain."""
    host: str
    pid: int
    ticks: int
    """Start of that process in kernel ticks: process IDs are used again."""
    boot: str
    engine: str
    source: str
    """The task file."""


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """The devices of this agent run, by node: ``(index, kind)``."""

    at: float
    end: float | None
    """End of the job; ``None``: not known, or no time limit."""
    nodes: dict[str, list[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class Starting:
    """An attempt is about to start: written before it does."""

    at: float
    task: str
    attempt: int
    parts: dict[str, list[int]]
    """Indices of its devices on each of its nodes; no indices for a task without devices."""
    share: float


@dataclass(frozen=True, slots=True)
class Started:
    """The supervisor of an attempt runs."""

    at: float
    task: str
    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A step of an earlier agent run was found alive: this agent run monitors it from now on."""

    at: float
    task: str
    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """An attempt was asked to end."""

    at: float
    task: str
    attempt: int
    why: str
    saves: bool
    """Whether it was asked by the signal upon which it saves its work."""
    fails: bool = False
    """Whether the task is to blame, so that the attempt has failed."""
    yields: bool = False
    """Whether another task preempts it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing of an attempt runs any more."""

    at: float
    task: str
    attempt: int
    result: AttemptResult
    code: int | None
    """``None``: not known."""
    why: str
    ran: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The task will not be retried, even if retries are left."""

    at: float
    task: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeAside:
    """No more tasks start on a node."""

    at: float
    node: str
    why: str


Run = tuple[str, int, int, str]
"""Model, number of devices, on how many nodes, their kind."""


@dataclass(frozen=True, slots=True)
class SpeedSeen:
    """The work that a task did, in the unit of its progress reports, while it ran next to these neighbours."""

    at: float
    task: str
    attempt: int
    run: Run
    beside: list[Run]
    seconds: float
    done: float


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark for a reader of the journal."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class LifeOver:
    """The agent ends in order; none of its steps runs any more."""

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
    """Parse one line. Raises ``ValueError`` where it is no entry."""
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

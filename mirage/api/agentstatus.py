"""Task state written by the agent within a link (``mirage.allocation.engine.status``), with bounds."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from pydantic.dataclasses import dataclass

from mirage.domain.texts import printable

_LAST = 10_000_000_000

Name = Annotated[str, StringConstraints(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$"), AfterValidator(printable)]
Text = Annotated[str, StringConstraints(max_length=10_000), AfterValidator(printable)]
Instant = Annotated[float, Field(ge=0, le=_LAST, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


class ReportedTaskState(StrEnum):
    """State of a task, as the agent reports it."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


# A file has thousands of these: with slots they take a fifth of the memory of a pydantic model.


@dataclass(frozen=True, slots=True)
class AgentRunState:
    """One run of the agent."""

    job: Count | None
    began: Instant | None
    nodes: dict[Name, list[tuple[Count, Name]]]
    """Index and type of each device that it may use, by node."""


@dataclass(frozen=True, slots=True)
class Task:
    """State of one task, with its number of attempts."""

    id: Name
    state: ReportedTaskState
    why: Text
    attempts: Count


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """One attempt of a task on one device."""

    task: Name
    attempt: Count
    share: Share
    start: Instant
    end: Instant | None


class TaskStatus(BaseModel):
    """The whole file; unknown fields are ignored."""

    version: Literal[1]
    time: Instant
    over: bool
    links: Annotated[list[AgentRunState], Field(max_length=10_000)]
    tasks: Annotated[list[Task], Field(max_length=50_000)]
    lanes: Annotated[dict[Name, list[ShownAttempt]], Field(max_length=10_000)]
    """Attempts by ``node:index``; ``node:`` for tasks on CPUs only."""

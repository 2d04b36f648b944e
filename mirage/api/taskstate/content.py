"""What the agent within a link publishes of its tasks (``mirage.allocation.engine.status``), within bounds."""

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


class State(StrEnum):
    """Of a task."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


# A file has thousands of each of these: with slots they take a fifth of a model's memory.


@dataclass(frozen=True, slots=True)
class Life:
    """One run of the agent."""

    job: Count | None
    began: Instant | None
    nodes: dict[Name, list[tuple[Count, Name]]]
    """Index and kind of each accelerator that it may use."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task."""

    id: Name
    state: State
    why: Text
    attempts: Count


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a task on one device."""

    task: Name
    attempt: Count
    share: Share
    start: Instant
    end: Instant | None


class TaskStatus(BaseModel):
    """All of it; what is not named here is passed over."""

    version: Literal[1]
    time: Instant
    over: bool
    links: Annotated[list[Life], Field(max_length=10_000)]
    tasks: Annotated[list[Task], Field(max_length=50_000)]
    lanes: Annotated[dict[Name, list[Attempt]], Field(max_length=10_000)]
    """By ``node:index``; ``node:`` for tasks of CPUs alone."""

"""What a gateway serves, to whom, and on what: its configuration file as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


_ALL_BODIES = 512 << 20


def all_bodies_of(largest_body: int) -> int:
    """Bytes of all requests together, where nobody says how many."""
    return max(_ALL_BODIES, 4 * largest_body)


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """One model: a network in an ONNX file, or a server of its own that speaks OpenAI's protocol."""

    name: str
    onnx: Path | None = None
    warm: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of inputs to warm up with, where the file leaves some open."""
    backend: tuple[str, ...] = ()
    """Command of the server; ``{port}`` in a word is where it shall listen."""
    folder: Path = Path()
    """The working directory of that server."""
    served_as: str = ""
    """What that server calls it."""
    expected: float | None = None
    """Seconds of one request, where nothing has been measured yet."""


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """Units that are alike."""

    name: str
    kind: str
    count: int
    models: tuple[str, ...]
    device: str
    """Generic resource that each stands on, such as ``npu`` or ``gpu:a100``; empty: none."""
    provider: str
    """``cpu`` or ``cuda``."""
    threads: int
    slots: int
    """Requests that one takes at once."""
    watts: float
    idle_watts: float
    command: tuple[str, ...]
    """Instead of the built-in worker."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of its workers."""
        return tuple(f"{self.name}{number}" for number in range(self.count)) if self.count > 1 else (self.name,)


@dataclass(frozen=True, slots=True)
class TenantPlan:
    """Somebody who asks."""

    name: str
    keys: tuple[str, ...]
    """SHA-256 of the API keys, in hex."""
    models: tuple[str, ...]
    deadline: float
    """Seconds from arrival to the answer, where a request says nothing; infinity: none."""
    weight: float
    rate: float
    """Requests a second; infinity: any number."""
    burst: int
    """Requests that may come at once before ``rate`` counts."""
    concurrent: int


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """Where it listens, and how it decides."""

    host: str
    port: int
    policy: str
    state: Path
    operators: tuple[str, ...]
    """SHA-256 of the keys that may read metrics and drain."""
    largest_body: int
    all_bodies: int
    """Bytes of all requests together."""
    largest_answer: int
    """Bytes of the tensors of one answer, or of a text."""
    certificate: str
    certificate_key: str


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """How much may wait, and how long."""

    most: int
    longest_wait: float


@dataclass(frozen=True, slots=True)
class WorkersPlan:
    """How long workers may take."""

    ready_within: float
    answer_within: float
    """Seconds: a worker that says nothing for so long about a request hangs, one that answers others drops it."""


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """All of it."""

    source: Path
    gateway: GatewayPlan
    queue: QueuePlan
    workers: WorkersPlan
    models: tuple[ModelPlan, ...]
    units: tuple[UnitPlan, ...]
    tenants: tuple[TenantPlan, ...]
    costs: str
    """Table of costs to begin with, by name or path; empty: none."""

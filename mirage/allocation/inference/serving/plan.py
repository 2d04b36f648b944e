"""Configuration of a gateway as values: listen address, models, units, tenants, limits."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+|localhost)):([0-9]{1,5})")


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:8800``, ``[::1]:8800``; port 0 means any. Raises ``ValueError``."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > 65_535:
        raise ValueError(f"invalid address {text!r}; expected one such as 127.0.0.1:8800 or [::1]:8800")
    host = "127.0.0.1" if found[2] == "localhost" else found[1] or found[2]
    ipaddress.ip_address(host)
    return host, int(found[3])


_ALL_BODIES = 512 << 20


def all_bodies_of(largest_body: int) -> int:
    """Default for the bytes of all requests together."""
    return max(_ALL_BODIES, 4 * largest_body)


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """One model: a network in an ONNX file, or a separate server with OpenAI's protocol."""

    name: str
    onnx: Path | None = None
    warm: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of inputs for the warm-up, where the file leaves some open."""
    backend: tuple[str, ...] = ()
    """Command of the server; ``{port}`` in a word is replaced by its port."""
    folder: Path = Path()
    """The working directory of that server."""
    served_as: str = ""
    """Name of the model at that server."""
    expected: float | None = None
    """Initial estimate of one request, in seconds."""


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """Units with the same models, device and number of slots."""

    name: str
    kind: str
    count: int
    models: tuple[str, ...]
    device: str
    """Generic resource of each unit, such as ``npu`` or ``gpu:a100``; empty: CPU only."""
    provider: str
    """``cpu`` or ``cuda``."""
    threads: int
    slots: int
    """Requests that one unit runs at the same time."""
    watts: float
    idle_watts: float
    command: tuple[str, ...]
    """Command that replaces the built-in worker."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its workers."""
        return tuple(f"{self.name}{number}" for number in range(self.count)) if self.count > 1 else (self.name,)


@dataclass(frozen=True, slots=True)
class TenantPlan:
    """A tenant: a client or a group of clients with the same keys."""

    name: str
    keys: tuple[str, ...]
    """SHA-256 of the API keys, in hexadecimal."""
    models: tuple[str, ...]
    deadline: float
    """Seconds from arrival to the answer, if the request states no deadline; infinity: no deadline."""
    weight: float
    rate: float
    """Requests per second; infinity: no limit."""
    burst: int
    """Requests that may come at the same time before ``rate`` counts."""
    concurrent: int


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """Listen address, limits and policy of the gateway."""

    host: str
    port: int
    policy: str
    state: Path
    operators: tuple[str, ...]
    """SHA-256 of the keys that may read metrics and drain the gateway."""
    largest_body: int
    all_bodies: int
    """Bytes of all requests together."""
    largest_answer: int
    """Largest answer in bytes: its tensors, or its text."""
    certificate: str
    certificate_key: str


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """Limits of the queue: number and waiting time."""

    most: int
    longest_wait: float


@dataclass(frozen=True, slots=True)
class WorkersPlan:
    """Time limits of workers."""

    ready_within: float
    answer_within: float
    """Seconds without a message about a request: a silent worker hangs, one that answers others drops it."""


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """The whole configuration."""

    source: Path
    gateway: GatewayPlan
    queue: QueuePlan
    workers: WorkersPlan
    models: tuple[ModelPlan, ...]
    units: tuple[UnitPlan, ...]
    tenants: tuple[TenantPlan, ...]
    costs: str
    """Initial cost table, by name or path; empty: no table."""

"""The data model of a scenario: system and requests. ``scenariofile`` reads it, ``stage`` uses it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.allocation.inference.rules import Sharing

MLPERF_SECONDS = {
    "resnet50": 0.015,
    "ssd-resnet34": 0.100,
    "retinanet": 0.100,
    "rnn-t": 1.000,
    "bert": 0.130,
    "dlrm": 0.030,
}
"""99th percentiles required by MLPerf Inference's server scenario in a datacenter: mlcommons/inference_policies,
rounds of 2021-03 (d18d1840) and, for RetinaNet, 2024-01 (7e12bdfb). A model has the bound of the longest of these
names with which its name begins, apart from hyphens, as ``bert-base`` has that of ``bert``."""


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """A kind of unit and the number of its units."""

    kind: str
    count: int
    idle_watts: float = 0.0


class Measure(StrEnum):
    """Base of which a deadline is a multiple."""

    SECONDS = "seconds"
    ISOLATED = "isolated"
    """Seconds of the model alone on the system's best kind for it."""
    MLPERF = "mlperf"
    """See ``MLPERF_SECONDS``."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds after its arrival at which a request is late; infinity for never."""

    factor: float
    measure: Measure = Measure.SECONDS


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant: its models, its share of the load and its deadlines."""

    name: str
    models: tuple[tuple[str, float], ...]
    """Models, each with its share of this tenant's requests, on any scale."""
    share: float
    """Share of the offered work, as alone on the best kind, on any scale."""
    bound: Bound
    bounds: tuple[tuple[str, Bound], ...] = ()
    """Bounds of single models, instead of ``bound``."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Poisson:
    """Each tenant's requests arrive independently of each other."""


@dataclass(frozen=True, slots=True)
class Bursts:
    """Each tenant changes between two phases, independently: a Markov-modulated Poisson process.

    In the high phase it sends ``factor`` times its mean rate, in the low one as much as keeps the mean: nothing
    where ``factor`` x ``part`` is 1 (on and off). The lengths of phases are exponentially distributed.
    """

    factor: float
    part: float
    """Share of the time in the high phase."""
    seconds: float
    """Mean length of a high phase, in seconds."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests that were recorded: a CSV file with the columns time (s), tenant and model."""

    path: str


Arrivals = Poisson | Bursts | Trace


@dataclass(frozen=True, slots=True)
class Scenario:
    """A system, its tenants and their requests."""

    name: str
    costs: str
    """A cost table by name or path, or ``synthetic:SEED``."""
    units: tuple[UnitGroup, ...]
    bandwidth: float
    """Bytes per second; infinity where units do not share."""
    sharing: Sharing
    tenants: tuple[Tenant, ...]
    arrivals: Arrivals
    load: float
    """Offered work, as a share of the capacity of the units; see ``capacity``. NaN for a trace."""
    duration: float
    """Seconds in which requests arrive."""
    pieces: int = 0
    """Most segments of a model: consecutive layers are joined; 0: each layer is a segment."""

"""What is asked of which system: the words of a scenario. ``scenariofile`` reads them, ``stage`` uses them."""

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
"""99th percentiles that MLPerf Inference's server scenario demanded in a datacenter: mlcommons/inference_policies,
rounds of 2021-03 (d18d1840) and, for RetinaNet, 2024-01 (7e12bdfb). A model has the bound of the longest of these
names with which its own begins, apart from hyphens, as ``bert-base`` has that of ``bert``."""


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """Units of one kind."""

    kind: str
    count: int
    idle_watts: float = 0.0


class Measure(StrEnum):
    """What a deadline is a multiple of."""

    SECONDS = "seconds"
    ISOLATED = "isolated"
    """What the model takes alone on the kind of the system that is best for it."""
    MLPERF = "mlperf"
    """See ``MLPERF_SECONDS``."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How long after its arrival a request is late; infinity for never."""

    factor: float
    measure: Measure = Measure.SECONDS


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who sends requests."""

    name: str
    models: tuple[tuple[str, float], ...]
    """Each with the part of this tenant's requests that it has, by any scale."""
    share: float
    """Of the work that is offered, as it takes alone on the best kind, by any scale."""
    bound: Bound
    bounds: tuple[tuple[str, Bound], ...] = ()
    """Of some models, instead of ``bound``."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Poisson:
    """Each tenant's requests come independently of each other."""


@dataclass(frozen=True, slots=True)
class Bursts:
    """Each tenant goes between two phases, by itself: a Markov-modulated Poisson process.

    In the high phase it sends ``factor`` times its mean rate; in the low one so much that the mean is kept:
    nothing at all where ``factor`` x ``part`` is 1 (on and off). Phases last exponentially distributed times.
    """

    factor: float
    part: float
    """Of the time, that is high."""
    seconds: float
    """Mean of a high phase."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests that were recorded: a CSV file with the columns time (s), tenant and model."""

    path: str


Arrivals = Poisson | Bursts | Trace


@dataclass(frozen=True, slots=True)
class Scenario:
    """A system, its tenants and what they send."""

    name: str
    costs: str
    """A cost table by name or path, or ``synthetic:SEED``."""
    units: tuple[UnitGroup, ...]
    bandwidth: float
    """Bytes a second; infinity where units do not share."""
    sharing: Sharing
    tenants: tuple[Tenant, ...]
    arrivals: Arrivals
    load: float
    """Work offered, of the most that the units can do together; see ``capacity``. NaN for a trace."""
    duration: float
    """Seconds in which requests come."""
    pieces: int = 0
    """The most of a model: layers that follow each other are run together as one; 0: each is a piece."""

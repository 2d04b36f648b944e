"""Scenarios: a system and the requests of its tenants, as values and in TOML. ``stage`` uses them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from mirage.allocation.inference.rules import Sharing
from mirage.atomic_file import read_regular
from mirage.documentreading import faults_of, parse_toml
from mirage.domain.errors import ConfigError

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


_BUILT_IN = Path(__file__).parent / "scenarios"
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|min|h)")
_MULTIPLE = re.compile(r"(isolated|mlperf)(?:\s*\*\s*([0-9]+(?:\.[0-9]+)?))?")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def _span(value: object) -> object:
    """Parse ``"15ms"`` to seconds; numbers are seconds already."""
    found = _SPAN.fullmatch(value.strip()) if isinstance(value, str) else None
    if isinstance(value, str) and found is None:
        raise ValueError(f"invalid time {value!r}; expected such as 15ms, 2s or 1min")
    return float(found[1]) * _SECONDS[found[2]] if found else value


def _bound(value: object) -> object:
    if value == "none":
        return Bound(math.inf)
    if isinstance(value, str) and (found := _MULTIPLE.fullmatch(value.strip())):
        return Bound(float(found[2] or 1.0), Measure(found[1]))
    try:
        seconds = _span(value)
    except ValueError:
        raise ValueError(
            f"invalid deadline {value!r}; expected such as 15ms, isolated*2, mlperf or none"
        ) from None
    return Bound(float(seconds)) if isinstance(seconds, int | float) else value


def _parts(value: object) -> object:
    """Read a list of models as a mix in equal parts."""
    return dict.fromkeys(value, 1.0) if isinstance(value, list) else value


Span = Annotated[float, BeforeValidator(_span), Field(gt=0, allow_inf_nan=False)]
Deadline = Annotated[Bound, BeforeValidator(_bound)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Mix = Annotated[dict[str, Positive], BeforeValidator(_parts), Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _UnitEntry(_Strict):
    kind: str
    count: Annotated[int, Field(ge=1, le=1024)] = 1
    idle_watts: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class _SystemEntry(_Strict):
    costs: str
    units: Annotated[tuple[_UnitEntry, ...], Field(min_length=1)]
    bandwidth_gbs: Positive | None = None
    sharing: Sharing = Sharing.ROOFLINE
    pieces: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _once(self) -> Self:
        kinds = [group.kind for group in self.units]
        if len(set(kinds)) < len(kinds):
            raise ValueError("units: duplicate kind")
        return self


class _TenantEntry(_Strict):
    name: Annotated[str, Field(min_length=1)]
    models: Mix
    deadline: Deadline
    deadlines: dict[str, Deadline] = {}
    share: Positive = 1.0
    weight: Positive = 1.0

    @model_validator(mode="after")
    def _finite(self) -> Self:
        wrong = sorted(set(self.deadlines) - set(self.models))
        if wrong:
            raise ValueError(f"deadlines: {', '.join(wrong)}: not among the models of the tenant")
        if any(bound.factor <= 0 for bound in (self.deadline, *self.deadlines.values())):
            raise ValueError("deadline: must be above 0")
        return self


class _ArrivalEntry(_Strict):
    kind: Literal["poisson", "bursts", "trace"] = "poisson"
    factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 4.0
    part: Annotated[float, Field(gt=0, lt=1)] = 0.25
    high: Span = 0.1
    path: str = ""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.kind == "bursts" and self.factor * self.part > 1.0 + 1e-9:
            raise ValueError("factor x part is above 1: the high phases alone would exceed the mean")
        if (self.kind == "trace") != bool(self.path):
            raise ValueError("path: required for a trace, and not allowed otherwise")
        return self


class _ScenarioFile(_Strict):
    system: _SystemEntry
    tenants: Annotated[tuple[_TenantEntry, ...], Field(min_length=1)]
    arrivals: _ArrivalEntry = _ArrivalEntry()
    load: Positive | None = None
    duration: Span

    @model_validator(mode="after")
    def _whole(self) -> Self:
        names = [tenant.name for tenant in self.tenants]
        if len(set(names)) < len(names):
            raise ValueError("tenants: duplicate name")
        if (self.arrivals.kind == "trace") == (self.load is not None):
            raise ValueError("load: required unless the arrivals are a trace, which has a fixed load")
        return self


def built_in_scenarios() -> tuple[str, ...]:
    """Names of the built-in scenarios."""
    return tuple(sorted(path.stem for path in _BUILT_IN.glob("*.toml")))


@lru_cache(maxsize=32)
def find_scenario(name: str) -> Scenario:
    """A built-in scenario by name, or one by its path. Raises ``ConfigError`` with all errors."""
    path = _BUILT_IN / f"{name}.toml" if name in built_in_scenarios() else Path(name)
    try:
        document = parse_toml(read_regular(path).decode("utf-8"))
    except OSError as error:
        known = ", ".join(built_in_scenarios())
        reason = error.strerror or error
        raise ConfigError(name, f"cannot be read ({reason}); the built-in scenarios are: {known}") from error
    except ValueError as error:
        raise ConfigError(name, f"invalid TOML: {error}") from error
    try:
        read = _ScenarioFile.model_validate(document)
    except ValidationError as error:
        raise ConfigError(name, "; ".join(map(str, faults_of(error)))) from error
    return _scenario(path, read)


def _scenario(path: Path, read: _ScenarioFile) -> Scenario:
    system = read.system
    return Scenario(
        name=path.stem,
        costs=_beside(path, system.costs) if system.costs.endswith(".csv") else system.costs,
        units=tuple(UnitGroup(group.kind, group.count, group.idle_watts) for group in system.units),
        bandwidth=math.inf if system.bandwidth_gbs is None else system.bandwidth_gbs * 1e9,
        sharing=system.sharing,
        tenants=tuple(
            Tenant(
                name=tenant.name,
                models=tuple(tenant.models.items()),
                share=tenant.share,
                bound=tenant.deadline,
                bounds=tuple(tenant.deadlines.items()),
                weight=tenant.weight,
            )
            for tenant in read.tenants
        ),
        arrivals=_arrivals(path, read.arrivals),
        load=math.nan if read.load is None else read.load,
        duration=read.duration,
        pieces=system.pieces,
    )


def _arrivals(path: Path, read: _ArrivalEntry) -> Arrivals:
    if read.kind == "trace":
        return Trace(_beside(path, read.path))
    return Bursts(read.factor, read.part, read.high) if read.kind == "bursts" else Poisson()


def _beside(path: Path, name: str) -> str:
    """A file named in a scenario is relative to the scenario's directory."""
    return str(path.parent / name)

"""Sets of tasks drawn from a mix: for training, and for comparisons on sets that no policy has seen.

A mix is described in a TOML file, or has every measured model with equal frequency.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from mirage.allocation.ddl.formats.rows import read_bytes
from mirage.allocation.ddl.formats.table import task_table
from mirage.documentreading import faults_of, parse_toml, reader_of
from mirage.domain.bounds import HIGHEST_FACTOR
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.speeds import Measurements
    from mirage.domain.pool import TaskTable

Float64 = NDArray[np.float64]


class Arrival(StrEnum):
    """Submission times of the tasks of a set."""

    AT_ONCE = "at-once"
    """All at 0: the work list of a new allocation."""
    POISSON = "poisson"
    """One by one, independently."""
    BURSTS = "bursts"
    """Several at one time, like searches over parameters; the times are independent."""


@dataclass(frozen=True, slots=True)
class ModelClass:
    """Tasks of one network: frequency and sizes."""

    model: str
    weight: float
    sizes: tuple[int, ...]
    """Possible numbers of devices."""
    size_weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TaskMix:
    """Distribution of tasks. The run time at reference speed is log-normal, cut at both ends."""

    classes: tuple[ModelClass, ...]
    count: int = 100
    median_s: float = 3600.0
    sigma: float = 1.2
    """Standard deviation of the logarithm of the run time."""
    shortest_s: float = 60.0
    longest_s: float = 86400.0
    arrival: Arrival = Arrival.AT_ONCE
    load: float = 1.0
    """Arriving device-seconds per second and device of the pool; unused where all tasks arrive together."""
    burst: float = 8.0
    """Mean number of tasks in a burst."""
    belief_sigma: float = 0.0
    """Standard deviation of log(estimated / true run time); 0 where run times are known."""
    tenants: int = 4
    slack: float | None = None
    """Deadlines are 1 + an exponential with this mean, times the run time, after submission; ``None``: none."""
    restart_s: float = np.nan
    """Seconds lost at a restart; NaN: no task has a checkpoint."""

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for invalid parameters."""
        wrong = next((key for key, fine in _checks(self).items() if not fine), None)
        if wrong is not None:
            raise ConfigError(f"mix of tasks: {wrong}", f"invalid value {getattr(self, wrong)!r}")


def measured_mix(measured: Measurements, **changes: object) -> TaskMix:
    """All measured models with equal frequency, in each measured size; ``changes``: fields of ``TaskMix``."""
    classes = tuple(
        ModelClass(model, 1.0, sizes, (1.0,) * len(sizes))
        for model, sizes in ((model, measured.sizes(model)) for model in measured.models)
    )
    return TaskMix(classes, **changes)  # type: ignore[arg-type]  # the dataclass checks the names, ``TaskMix`` the values


def draw_tasks(mix: TaskMix, rng: np.random.Generator, pool_devices: int) -> TaskTable:
    """Draw one set of tasks. ``pool_devices``: basis of ``mix.load``, and the most devices of a task."""
    sizes = _allowed(mix, pool_devices)
    chosen = rng.choice(len(sizes), size=mix.count, p=_shares([weight for _, _, weight in sizes]))
    devices = np.array([sizes[row][1] for row in chosen], dtype=np.int32)
    work = np.clip(mix.median_s * rng.lognormal(0.0, mix.sigma, mix.count), mix.shortest_s, mix.longest_s)
    submit = _arrivals(mix, rng, float((work * devices).mean()) / pool_devices)
    believed = work * rng.lognormal(0.0, mix.belief_sigma, mix.count)
    slack = np.nan if mix.slack is None else 1.0 + rng.exponential(mix.slack, mix.count)
    tenants = rng.integers(0, mix.tenants, mix.count)
    return task_table(
        tuple(f"t{number}" for number in range(mix.count)),
        submit=submit,
        devices=devices,
        work=work,
        expected=believed,
        restart=mix.restart_s,
        deadline=submit + slack * work,
        model=[sizes[row][0] for row in chosen],
        tenant=[f"tenant{number}" for number in tenants],
    )


def _allowed(mix: TaskMix, most: int) -> list[tuple[str, int, float]]:
    """Model, devices and weight of every size that fits into the pool."""
    found = [
        (one.model, size, one.weight * weight / sum(one.size_weights))
        for one in mix.classes
        for size, weight in zip(one.sizes, one.size_weights, strict=True)
        if size <= most
    ]
    if not found or sum(weight for _, _, weight in found) <= 0:
        raise ConfigError("mix of tasks", f"none of its tasks fits on {most} devices")
    return found


def _shares(weights: list[float]) -> Float64:
    return np.array(weights) / sum(weights)


def _arrivals(mix: TaskMix, rng: np.random.Generator, mean_gap: float) -> Float64:
    """Ascending, the first at 0. ``mean_gap``: seconds from one task to the next at a load of 1."""
    if mix.arrival is Arrival.AT_ONCE:
        return np.zeros(mix.count)
    gaps = rng.exponential(mean_gap / mix.load, mix.count)
    if mix.arrival is Arrival.BURSTS:
        begins = rng.random(mix.count) < 1.0 / mix.burst
        gaps = np.where(begins, gaps * mix.burst, 0.0)
    gaps[0] = 0.0
    return np.cumsum(gaps)


def _checks(mix: TaskMix) -> dict[str, bool]:
    return {
        "classes": bool(mix.classes) and all(_drawable(one) for one in mix.classes),
        "count": 1 <= mix.count <= HIGHEST_FACTOR,
        "median_s": 0 < mix.median_s < np.inf,
        "sigma": 0 <= mix.sigma < np.inf,
        "shortest_s": 0 < mix.shortest_s <= mix.longest_s,
        "longest_s": mix.longest_s < np.inf,
        "load": 0 < mix.load < np.inf,
        "burst": 1 <= mix.burst < np.inf,
        "belief_sigma": 0 <= mix.belief_sigma < np.inf,
        "tenants": 1 <= mix.tenants <= HIGHEST_FACTOR,
        "slack": mix.slack is None or 0 <= mix.slack < np.inf,
        "restart_s": bool(np.isnan(mix.restart_s)) or 0 <= mix.restart_s < np.inf,
    }


def _drawable(one: ModelClass) -> bool:
    weights = (one.weight, *one.size_weights)
    return (
        0 < len(one.sizes) == len(one.size_weights)
        and min(one.sizes) >= 1
        and all(0 <= weight < np.inf for weight in weights)
        and sum(one.size_weights) > 0
    )


class _ClassEntry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str = ""
    weight: float = 1.0
    sizes: tuple[int, ...]
    size_weights: tuple[float, ...] | None = None


class _MixFile(BaseModel):
    """The fields of ``TaskMix``; missing ones have the defaults of ``TaskMix``."""

    model_config = ConfigDict(extra="forbid")

    classes: tuple[_ClassEntry, ...] = ()
    count: int | None = None
    median_s: float | None = None
    sigma: float | None = None
    shortest_s: float | None = None
    longest_s: float | None = None
    arrival: Arrival | None = None
    load: float | None = None
    burst: float | None = None
    belief_sigma: float | None = None
    tenants: int | None = None
    slack: float | None = None
    restart_s: float | None = None


def read_mix(path: str | Path, measured: Measurements | None) -> TaskMix:
    """The mix of a file; without ``[[classes]]``, all measured models. Raises ``ConfigError``."""
    try:
        document = parse_toml(read_bytes(path))
        read = reader_of(_MixFile).validate_python(document)
    except ValidationError as error:
        first = faults_of(error)[0]
        raise ConfigError(f"{path}: {first.key}", first.said) from error
    except ValueError as error:
        raise ConfigError(str(path), f"invalid TOML: {error}") from error
    changes = read.model_dump(exclude={"classes"}, exclude_none=True)
    if read.classes:
        return TaskMix(tuple(_class(entry) for entry in read.classes), **changes)
    if measured is None:
        raise ConfigError(str(path), "needs [[classes]], or --speeds with the models to draw from")
    return measured_mix(measured, **changes)


def _class(entry: _ClassEntry) -> ModelClass:
    weights = entry.size_weights or (1.0,) * len(entry.sizes)
    return ModelClass(entry.model, entry.weight, entry.sizes, weights)

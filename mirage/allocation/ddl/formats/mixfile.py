"""Mixes of tasks in TOML, for sets that are drawn rather than recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from mirage.allocation.ddl.formats.rows import read_bytes
from mirage.allocation.ddl.generator import Arrival, Mix, ModelClass, measured_mix
from mirage.documentfaults import faults_of, reader_of
from mirage.documenttext import parse_toml
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.speeds import Measurements


class _ClassEntry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str = ""
    weight: float = 1.0
    sizes: tuple[int, ...]
    size_weights: tuple[float, ...] | None = None


class _MixFile(BaseModel):
    """The fields of ``Mix``; missing ones have the defaults of ``Mix``."""

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


def read_mix(path: str | Path, measured: Measurements | None) -> Mix:
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
        return Mix(tuple(_class(entry) for entry in read.classes), **changes)
    if measured is None:
        raise ConfigError(str(path), "needs [[classes]], or --speeds with the models to draw from")
    return measured_mix(measured, **changes)


def _class(entry: _ClassEntry) -> ModelClass:
    weights = entry.size_weights or (1.0,) * len(entry.sizes)
    return ModelClass(entry.model, entry.weight, entry.sizes, weights)

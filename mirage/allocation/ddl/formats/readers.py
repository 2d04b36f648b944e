"""One reader for all formats of tasks, one for all tables of speeds, and one for pools in short notation.

A pool is written ``8x8`` or ``4x8:v100@2.5,2x4:k80@0.45``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.formats.speeds import read_deepshare, read_gavel, read_measured
from mirage.allocation.ddl.formats.table import TaskTrace, playable
from mirage.allocation.ddl.formats.traces import read_deepshare_trace, read_joblist, read_muri, read_openb
from mirage.allocation.ddl.generator import draw_tasks, read_mix
from mirage.allocation.ddl.speeds import even_speeds, measured_kinds, speed_table
from mirage.domain.errors import ConfigError
from mirage.domain.pool import Pool

if TYPE_CHECKING:
    from mirage.allocation.ddl.speeds import Measurements
    from mirage.domain.pool import SpeedTable

_PART = re.compile(
    r"(?P<nodes>[1-9]\d{0,4})x(?P<devices>[1-9]\d{0,3})(:(?P<kind>[\w.-]+))?(@(?P<price>\d+(\.\d*)?))?", re.ASCII
)
_MOST_KINDS = 64
PLAIN_KIND = "gpu"
"""Kind of devices without a stated kind."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """A number of equal nodes."""

    count: int
    devices: int
    """Devices of each node, joined by fast links."""
    kind: str = PLAIN_KIND
    price: float = 1.0
    """Dollars per device and hour."""
    cpus: int = 128
    memory_mb: int = 1 << 20


def parse_pool(text: str) -> Pool:
    """Parse ``NODESxDEVICES[:KIND][@DOLLARS]``, several comma-separated; raises ``ConfigError``."""
    parts = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if not found:
            raise ConfigError(
                "--pool", f"{part.strip()!r} is not NODESxDEVICES[:KIND][@DOLLARS], such as 8x8:a100@2.5"
            )
        said = found.groupdict()
        parts.append(
            Nodes(
                int(said["nodes"]), int(said["devices"]), said["kind"] or PLAIN_KIND, float(said["price"] or 1.0)
            )
        )
    return build_pool(parts)


def build_pool(parts: list[Nodes]) -> Pool:
    """A pool of nodes ``n0``, ``n1``, ... below one switch. Raises ``ConfigError`` for one kind at two prices."""
    prices = _prices(parts)
    kinds = tuple(prices)
    nodes = [part for part in parts for _ in range(part.count)]
    held = [node.devices for node in nodes]
    device_node = np.repeat(np.arange(len(nodes), dtype=np.int32), held)
    return Pool(
        node_names=tuple(f"n{number}" for number in range(len(nodes))),
        cpus=np.array([node.cpus for node in nodes], dtype=np.int32),
        memory_mb=np.array([node.memory_mb for node in nodes], dtype=np.int64),
        switch=np.zeros(len(nodes), dtype=np.int32),
        device_node=device_node,
        device_index=np.concatenate([np.arange(count, dtype=np.int32) for count in held]),
        device_kind=np.repeat(np.array([kinds.index(node.kind) for node in nodes], dtype=np.int32), held),
        island=device_node.copy(),
        kinds=kinds,
        price=np.array(list(prices.values())),
    )


def _prices(parts: list[Nodes]) -> dict[str, float]:
    prices: dict[str, float] = {}
    for part in parts:
        if prices.setdefault(part.kind, part.price) != part.price:
            raise ConfigError("--pool", f"{part.kind!r} has two prices: {prices[part.kind]:g} and {part.price:g}")
    if len(prices) > _MOST_KINDS:
        raise ConfigError("--pool", f"{len(prices)} kinds of devices (at most {_MOST_KINDS})")
    return prices


class TaskFormat(StrEnum):
    """Formats of task traces."""

    MURI = "muri"
    """CSV files of Muri."""
    OPENB = "openb"
    """Pods of Alibaba; the pool is the CSV file of its nodes."""
    JOBS = "jobs"
    """Jobs of Philly and Helios in parquet."""
    DEEPSHARE = "deepshare"
    """JSON files of DeepShare; need its table of speeds."""
    MIX = "mix"
    """A TOML file from which a set of tasks is drawn for each seed."""


_SPEEDS = {"deepshare": read_deepshare, "gavel": read_gavel, "measured": read_measured}


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Sources of tasks, pool and speeds, as texts, so that another process can read them again."""

    trace: str
    format: TaskFormat
    pool: str
    """As ``parse_pool`` takes it; a file of nodes for openb."""
    speeds: str = ""
    """As ``read_speeds`` takes it, or empty: all speeds are 1."""

    @property
    def drawn(self) -> bool:
        """Whether each seed has a separate set of tasks."""
        return self.format is TaskFormat.MIX


def read_source(source: TaskSource, seed: int) -> tuple[TaskTrace, SpeedTable]:
    """The tasks, and their speeds in the pool.

    Raises ``TraceError`` and ``ConfigError`` for invalid files and texts, ``MissingExtra`` if reading needs a
    package that is not installed.
    """
    measured = read_speeds(source.speeds) if source.speeds else None
    trace = _read(source, measured, seed)
    if measured is None:
        trace = playable(trace)
        return trace, even_speeds(trace.tasks, trace.pool)
    narrowed = replace(trace.tasks, kinds=measured_kinds(measured, trace.tasks, trace.pool))
    trace = playable(replace(trace, tasks=narrowed))
    return trace, speed_table(measured, trace.tasks, trace.pool)


def read_speeds(text: str) -> Measurements:
    """Parse ``deepshare:DIR``, ``gavel:FILE`` or ``measured:FILE``."""
    name, colon, path = text.partition(":")
    if name not in _SPEEDS or not colon or not path:
        raise ConfigError(
            "--speeds", f"invalid value {text!r} (choose from deepshare:DIR, gavel:FILE, measured:FILE)"
        )
    return _SPEEDS[name](path)


def _read(source: TaskSource, measured: Measurements | None, seed: int) -> TaskTrace:
    if source.format is TaskFormat.OPENB:
        if not Path(source.pool).is_file():
            raise ConfigError("--pool", f"{source.pool!r} must be the CSV file of openb's nodes")
        return read_openb(source.trace, source.pool)
    pool = parse_pool(source.pool)
    if source.format is TaskFormat.MIX:
        mix = read_mix(source.trace, measured)
        tasks = draw_tasks(mix, np.random.default_rng(seed), len(pool.device_node))
        return TaskTrace(source.trace, tasks, pool, len(tasks))
    if source.format is TaskFormat.DEEPSHARE:
        if measured is None:
            raise ConfigError("--speeds", "a DeepShare trace counts samples; use --speeds deepshare:DIR")
        return read_deepshare_trace(source.trace, pool, measured)
    read = read_muri if source.format is TaskFormat.MURI else read_joblist
    return read(source.trace, pool)

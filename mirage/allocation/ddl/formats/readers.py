"""One reader for all formats of tasks, and one for all tables of speeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.formats.deepshare import read_deepshare
from mirage.allocation.ddl.formats.deepsharetrace import read_deepshare_trace
from mirage.allocation.ddl.formats.gavel import read_gavel
from mirage.allocation.ddl.formats.joblist import read_joblist
from mirage.allocation.ddl.formats.measured import read_measured
from mirage.allocation.ddl.formats.mixfile import read_mix
from mirage.allocation.ddl.formats.muri import read_muri
from mirage.allocation.ddl.formats.openb import read_openb
from mirage.allocation.ddl.formats.pools import parse_pool
from mirage.allocation.ddl.formats.result import TaskTrace, playable
from mirage.allocation.ddl.generator import draw_tasks
from mirage.allocation.ddl.speeds import even_speeds, measured_kinds, speed_table
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from mirage.allocation.ddl.speeds import Measurements
    from mirage.domain.pool import SpeedTable


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

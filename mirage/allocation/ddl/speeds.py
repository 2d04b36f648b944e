"""Table of speeds of a pool's tasks, from measured throughputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import ConfigError
from mirage.domain.pool import SpeedTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.pool import Pool, TaskTable

Float64 = NDArray[np.float64]

ANY = ""
"""The kind of a measurement that holds for devices of every kind."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Configuration of a measured run."""

    model: str
    devices: int
    spread: int
    """Number of nodes of the devices; see ``Measurements.beyond_fewest``."""
    kind: str = ANY


@dataclass(frozen=True, slots=True)
class Measurements:
    """Throughputs of M runs alone, and the factor of each next to each other one."""

    source: str
    """File or directory, for messages."""
    runs: tuple[MeasuredRun, ...]
    throughput: Float64
    """[M] In any unit that is the same for all runs of a model; 0 where the model did not fit."""
    ratio: Float64
    """[M, M] Factor of a run's throughput next to another; 1 where not measured."""
    reference_kind: str = ANY
    beyond_fewest: bool = False
    """Whether spread 1 means "on as few nodes as they fit on" rather than one node."""

    @property
    def models(self) -> tuple[str, ...]:
        """The classes of networks, in order of appearance."""
        return tuple(dict.fromkeys(run.model for run in self.runs))

    def sizes(self, model: str) -> tuple[int, ...]:
        """The numbers of devices at which a model was measured, ascending."""
        return tuple(sorted({run.devices for run in self.runs if run.model == model}))

    def reference(self, model: str, devices: int) -> float:
        """The throughput of speed 1: that of the narrowest measured spread, on the reference kind.

        Raises ``ConfigError`` where no run of that model and size has a throughput.
        """
        found = self._runs_of(model, devices, self.reference_kind) or self._runs_of(model, devices, None)
        found = [row for row in found if self.throughput[row] > 0]
        if not found:
            raise ConfigError(self.source, f"no throughput of {model!r} on {devices} devices")
        return float(self.throughput[min(found, key=self._spread)])

    def fit(self, model: str, devices: int, spread: int, kind: str) -> int | None:
        """The run that represents a placement; ``None`` where the model was not measured on that kind, or fails.

        Of the numbers of devices, the nearest by ratio (of two equally near ones the smaller). Of the spreads,
        that of the placement, else the next wider, else the widest.
        """
        for size in sorted(self.sizes(model), key=lambda size: (abs(np.log2(size / devices)), size)):
            found = self._runs_of(model, size, kind)
            if found:
                wide = [row for row in found if self.runs[row].spread >= spread]
                chosen = min(wide, key=self._spread) if wide else max(found, key=self._spread)
                return chosen if self.throughput[chosen] > 0 else None
        return None

    def _spread(self, row: int) -> int:
        return self.runs[row].spread

    def _runs_of(self, model: str, devices: int, kind: str | None) -> list[int]:
        return [
            row
            for row, run in enumerate(self.runs)
            if (run.model, run.devices) == (model, devices)
            and (kind is None or run.kind == ANY or run.kind.lower() == kind.lower())
        ]


def even_speeds(tasks: TaskTable, pool: Pool) -> SpeedTable:
    """A table in which every task runs at speed 1 everywhere, without interference."""
    return SpeedTable(np.zeros((len(tasks), len(pool.kinds), 1), dtype=np.int32), np.ones(1), np.ones((1, 1)))


def speed_table(measured: Measurements, tasks: TaskTable, pool: Pool) -> SpeedTable:
    """Speeds of these tasks on this pool, from measurements.

    Row 0 is speed 1 next to any task: for tasks without a model and without devices. Raises ``ConfigError`` for a
    model that was not measured, and for a task that may use a kind of device on which its model was not measured.
    """
    row = np.zeros((len(tasks), len(pool.kinds), _width(measured, pool)), dtype=np.int32)
    for (model, devices), members in _alike(tasks).items():
        row[members] = _rows_of(measured, model, devices, pool, row.shape[2])
    _refuse_unmeasured(measured, tasks, pool, row)
    return _table(measured, row)


def partial_speed_table(measured: Measurements, tasks: TaskTable, pool: Pool) -> SpeedTable:
    """``speed_table``, in which unmeasured tasks run at speed 1 next to any other."""
    row = np.zeros((len(tasks), max(1, len(pool.kinds)), _width(measured, pool)), dtype=np.int32)
    for (model, devices), members in _alike(tasks).items():
        if pool.kinds and model in measured.models:
            row[members] = _rows_of(measured, model, devices, pool, row.shape[2])
    return _table(measured, row)


def _table(measured: Measurements, row: NDArray[np.int32]) -> SpeedTable:
    count = len(measured.runs) + 1
    alone, together = np.ones(count), np.ones((count, count))
    alone[1:] = measured.throughput / [measured.reference(run.model, run.devices) for run in measured.runs]
    together[1:, 1:] = measured.ratio
    return SpeedTable(np.maximum(row, 0), alone, together)


def measured_kinds(measured: Measurements, tasks: TaskTable, pool: Pool) -> NDArray[np.uint64]:
    """``tasks.kinds`` without the kinds of device on which a task's model was not measured (``speed_table``)."""
    kinds = tasks.kinds.copy()
    for (model, devices), members in _alike(tasks).items():
        lacking = [k for k, kind in enumerate(pool.kinds) if measured.fit(model, devices, 1, kind) is None]
        for k in lacking if model in measured.models else []:
            kinds[members] &= ~(np.uint64(1) << np.uint64(k))
    return kinds


def _width(measured: Measurements, pool: Pool) -> int:
    """Number of different spreads that have a row."""
    widest = max((run.spread for run in measured.runs), default=1)
    return len(pool.node_names) if measured.beyond_fewest else max(1, min(widest, len(pool.node_names)))


def _alike(tasks: TaskTable) -> dict[tuple[str, int], list[int]]:
    """Rows of the tasks with a model and devices, by both."""
    groups: dict[tuple[str, int], list[int]] = {}
    for task, (model, devices) in enumerate(zip(tasks.model.decode(), tasks.devices.tolist(), strict=True)):
        if model and devices:
            groups.setdefault((model, devices), []).append(task)
    return groups


def _rows_of(measured: Measurements, model: str, devices: int, pool: Pool, width: int) -> NDArray[np.int32]:
    """[K, S] Rows in the speed table; -1: not measured."""
    if model not in measured.models:
        known = _listed(measured.models)
        raise ConfigError(measured.source, f"no speeds of model {model!r} (measured: {known})")
    fewest = fewest_nodes(devices, pool) if measured.beyond_fewest else 1
    rows = np.full((len(pool.kinds), width), -1, dtype=np.int32)
    for k, kind in enumerate(pool.kinds):
        for s in range(width):
            found = measured.fit(model, devices, max(1, s + 2 - fewest), kind)
            rows[k, s] = -1 if found is None else found + 1
    return rows


def fewest_nodes(devices: int, pool: Pool) -> int:
    """Fewest nodes of a pool that have this many devices."""
    held = np.cumsum(np.sort(np.bincount(pool.device_node, minlength=1))[::-1])
    return min(int(np.searchsorted(held, devices)), len(held) - 1) + 1


def _refuse_unmeasured(measured: Measurements, tasks: TaskTable, pool: Pool, row: NDArray[np.int32]) -> None:
    for k in np.unique(pool.device_kind).tolist():
        allowed = (tasks.kinds >> np.uint64(k)) & np.uint64(1) == 1
        lacking = np.flatnonzero(allowed & (row[:, k] < 0).any(axis=1))
        if lacking.size:
            name, model = tasks.name[lacking[0]], tasks.model[int(lacking[0])]
            known = _listed(run.kind for run in measured.runs if run.model == model and run.kind != pool.kinds[k])
            problem = f"task {name!r} may run on {pool.kinds[k]!r}, but {model!r} was measured only on {known}"
            raise ConfigError(measured.source, problem)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))) or "none"

"""Place workers on devices, and build the system of units that the policy sees.

Run times of requests by model and kind of unit are estimated from the requests that have ended.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.costs.tables import cost_table
from mirage.allocation.inference.serving.worker_supervisor import Seat
from mirage.domain.errors import ConfigError
from mirage.domain.inference import CostTable, DeviceSet
from mirage.ownprocess import own_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from mirage.allocation.engine.discovery import NodeFound
    from mirage.allocation.inference.serving.plan import ModelPlan, ServingPlan, UnitPlan

_SLOWEST = 0.1
"""Weight of the newest measurement, after many measurements."""
_MOVED = 0.1
"""Relative change of an estimate that makes a new table."""
_GUESS = 0.1
"""Seconds assumed before any measurement."""


class Estimates:
    """Exponentially weighted means of seconds, by model (M) and kind (K); a request is one segment.

    The first measurements count alike (a plain mean), later ones with weight 1/10. An initial estimate counts like
    one measurement.
    """

    def __init__(
        self,
        models: Sequence[str],
        kinds: Sequence[str],
        able: NDArray[np.bool_],
        watts: NDArray[np.float64],
        expected: Mapping[tuple[str, str], float],
    ) -> None:
        """``able``: [M, K] which kinds run which models. ``watts``: [K] power draw of a busy unit."""
        self._models, self._kinds, self._watts = tuple(models), tuple(kinds), watts
        self._count = np.zeros(able.shape, np.int64)
        self._seconds = np.where(able, _GUESS, np.nan)
        for (model, kind), seconds in expected.items():
            if model in self._models and kind in self._kinds:
                self.begin_with(self._models.index(model), self._kinds.index(kind), seconds)
        self._shown = self._table()

    def begin_with(self, model: int, kind: int, seconds: float) -> None:
        """Set an initial estimate; it counts until something has been measured here."""
        if self._count[model, kind] <= 1 and not np.isnan(self._seconds[model, kind]):
            self._seconds[model, kind], self._count[model, kind] = seconds, 1
            self._shown = self._table()

    def observe(self, model: int, kind: int, seconds: float) -> None:
        """Add a measurement, in seconds."""
        self._count[model, kind] += 1
        part = max(1 / self._count[model, kind], _SLOWEST)
        self._seconds[model, kind] += part * (seconds - self._seconds[model, kind])
        shown = self._shown.seconds[model, kind]
        if abs(self._seconds[model, kind] - shown) > _MOVED * shown:
            self._shown = self._table()

    def seconds(self, model: int, kind: int) -> float:
        """[M, K] Seconds of one request; NaN where the kind cannot run the model."""
        return float(self._seconds[model, kind])

    @property
    def table(self) -> CostTable:
        """A new object after each change of an estimate, so that results may be cached by identity."""
        return self._shown

    def document(self) -> dict[str, dict[str, float]]:
        """Measured seconds by model and kind, for the next gateway."""
        return {
            model: {
                kind: float(self._seconds[m, k]) for k, kind in enumerate(self._kinds) if self._count[m, k] > 0
            }
            for m, model in enumerate(self._models)
        }

    def _table(self) -> CostTable:
        count = len(self._models)
        seconds = self._seconds.copy()
        return CostTable(
            models=self._models,
            first=np.arange(count + 1, dtype=np.int32),
            pieces=("request",) * count,
            kinds=self._kinds,
            seconds=seconds,
            compute_seconds=seconds,
            joules=seconds * self._watts,
            dram_bytes=np.zeros(seconds.shape),
        )


_WORKER = tuple(own_python("-m", "mirage.allocation.inference.serving.worker"))


def kinds_of(plan: ServingPlan) -> tuple[str, ...]:
    """Kinds of units, in the file's order."""
    return tuple(dict.fromkeys(unit.kind for unit in plan.units))


def system_of(plan: ServingPlan) -> DeviceSet:
    """One row for each request that a unit runs at the same time."""
    kinds, names, kind, idle = kinds_of(plan), list[str](), list[int](), {}
    for unit in plan.units:
        for worker in unit.names:
            names += [worker] if unit.slots == 1 else [f"{worker}/{slot}" for slot in range(unit.slots)]
        kind += [kinds.index(unit.kind)] * (unit.count * unit.slots)
        idle[unit.kind] = unit.idle_watts
    return DeviceSet(
        tuple(names), np.array(kind, np.int32), math.inf, np.array([idle[name] for name in kinds], np.float64)
    )


def estimates_of(plan: ServingPlan, learnt: Mapping[str, Mapping[str, float]]) -> Estimates:
    """Initial estimates: measurements of an earlier gateway, else a cost table, else the configured value.

    Raises what ``cost_table`` raises.
    """
    kinds, models = kinds_of(plan), [model.name for model in plan.models]
    able = np.zeros((len(models), len(kinds)), np.bool_)
    watts = np.zeros(len(kinds))
    for unit in plan.units:
        column = kinds.index(unit.kind)
        watts[column] = unit.watts
        able[[models.index(name) for name in unit.models], column] = True
    said = {(m.name, kind): m.expected for m in plan.models for kind in kinds if m.expected is not None}
    found = {(model, kind): seconds for model, of in learnt.items() for kind, seconds in of.items()}
    return Estimates(models, kinds, able, watts, said | _tabled(plan.costs) | found)


def _tabled(name: str) -> dict[tuple[str, str], float]:
    """Seconds of whole models; pairs missing in a table are omitted."""
    if not name:
        return {}
    table = cost_table(name)
    return {
        (model, kind): float(whole)
        for model, first in zip(table.models, table.first, strict=False)
        for kind, whole in zip(table.kinds, table.remaining()[first], strict=True)
        if math.isfinite(whole)
    }


def seats_of(plan: ServingPlan, nodes: Sequence[NodeFound], here: str) -> list[Seat]:
    """``here``: the node of workers without a device. Raises ``ConfigError``."""
    free = {device: _devices(nodes, device) for device in {unit.device for unit in plan.units if unit.device}}
    taken = set[tuple[str, str, int]]()
    models = {model.name: model for model in plan.models}
    rows = itertools.count()
    seats = []
    for unit in plan.units:
        for number, name in enumerate(unit.names):
            node, device = _take(unit, number, free, taken) if unit.device else (here, None)
            own = tuple(itertools.islice(rows, unit.slots))
            command = unit.command or _WORKER
            setup = _setup(unit, models) | {"largest_answer": plan.gateway.largest_answer}
            seats.append(Seat(name, node, device, command, setup, own))
    return seats


def _take(
    unit: UnitPlan,
    number: int,
    free: Mapping[str, Iterator[tuple[str, str, int]]],
    taken: set[tuple[str, str, int]],
) -> tuple[str, tuple[str, int]]:
    """The next free device of the kind."""
    found = next((place for place in free[unit.device] if place not in taken), None)
    if found is None:
        raise ConfigError(
            f"unit {unit.name!r}",
            f"{unit.count} units need a device {unit.device!r} each; {number} are left in this allocation",
        )
    taken.add(found)
    node, kind, index = found
    return node, (kind, index)


def _devices(nodes: Sequence[NodeFound], wanted: str) -> Iterator[tuple[str, str, int]]:
    """``gpu`` means any device of the generic resource, ``gpu:a100`` one of that type."""
    return (
        (node.name, device.kind, device.index)
        for node in nodes
        for device in node.devices
        if wanted in (device.kind, device.kind.partition(":")[0])
    )


def _setup(unit: UnitPlan, models: Mapping[str, ModelPlan]) -> dict[str, Any]:
    return {
        "models": [_loaded(models[name]) for name in unit.models],
        "threads": unit.threads,
        "provider": unit.provider,
        "slots": unit.slots,
    }


def _loaded(model: ModelPlan) -> dict[str, Any]:
    if model.onnx is None:
        return {"name": model.name, "backend": list(model.backend), "folder": str(model.folder)}
    warm = {name: list(shape) for name, shape in model.warm.items()}
    return {"name": model.name, "onnx": str(model.onnx), "warm": warm}

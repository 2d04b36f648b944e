"""A ``SystemView`` as compiled policies look at it.

Its ready requests take the first slots, in their order; those that run take the following ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.encode import least_seconds
from mirage.allocation.inference.kernel.look import MEMORY, POPULATION, STATE, WINDOW, Draft, Look

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.request import CostTable, Float64, Int32
    from mirage.domain.units import Int64, SystemView


@dataclass(frozen=True, slots=True)
class Costs:
    """A cost table as the kernel reads it, with what follows from it."""

    table: CostTable
    first: Int32
    seconds: Float64
    compute_seconds: Float64
    joules: Float64
    dram_bytes: Float64
    remaining: Float64
    least: Float64


def read_costs(table: CostTable) -> Costs:
    """Work out what follows from a table, once for all views of it."""
    return Costs(
        table=table,
        first=_ints(table.first),
        seconds=_floats(table.seconds),
        compute_seconds=_floats(table.compute_seconds),
        joules=_floats(table.joules),
        dram_bytes=_floats(table.dram_bytes),
        remaining=_floats(table.remaining()),
        least=least_seconds(table),
    )


def look_at(view: SystemView, costs: Costs) -> Look:
    """The view, copied."""
    units = np.flatnonzero(view.running >= 0)
    running = np.full(len(view.running), -1, np.int64)
    running[units] = len(view.request) + np.arange(len(units))
    piece = _ints(np.concatenate((view.piece, view.running_piece[units])))
    model = np.searchsorted(costs.first, piece, side="right") - 1
    unknown = np.zeros(len(units))
    return Look(
        ready=np.arange(len(view.request)),
        arrival=np.concatenate((view.arrival, unknown)),
        deadline=np.concatenate((view.deadline, view.running_deadline[units])),
        weight=np.concatenate((view.weight, view.running_weight[units])),
        model=_ints(model),
        tenant=_ints(np.concatenate((view.tenant, unknown))),
        number=np.concatenate((view.request, view.running[units])),
        piece=piece,
        ready_since=np.concatenate((view.ready_since, unknown)),
        served=np.concatenate((view.served, unknown)),
        kind=_ints(view.system.kind),
        running=running,
        free_at=_floats(view.free_at),
        drawn=_floats(view.drawn),
        tenant_ended=np.array(view.tenant_ended, np.int64),
        tenant_kept=np.array(view.tenant_kept, np.int64),
        seconds=costs.seconds,
        compute_seconds=costs.compute_seconds,
        joules=costs.joules,
        dram_bytes=costs.dram_bytes,
        remaining=costs.remaining,
        first=costs.first,
        least=costs.least,
        bandwidth=float(view.system.bandwidth),
    )


def new_draft(slots: int, units: int) -> Draft:
    """Working memory for so many requests, ready or not; nothing is remembered."""
    return Draft(
        ready=np.zeros(units, np.int32),
        unit=np.zeros(units, np.int32),
        key=np.zeros(slots),
        late=np.zeros(slots, np.int8),
        order=np.zeros(slots, np.int32),
        available=np.zeros(units),
        start=np.zeros(max(slots, units)),
        memory=np.zeros((slots, MEMORY)),
        state=np.zeros(STATE),
        genes=np.zeros((POPULATION, 2, WINDOW)),
        fitness=np.zeros(POPULATION),
    )


@dataclass(slots=True)
class Memory:
    """What a policy remembers of requests, which change their slots from view to view."""

    _rows: dict[int, Float64] = field(default_factory=dict)

    def recall(self, numbers: Int64, draft: Draft) -> None:
        """Put what is known of these requests into their slots; 0 where nothing is."""
        nothing = np.zeros(MEMORY)
        for slot, number in enumerate(numbers.tolist()):
            draft.memory[slot] = self._rows.get(number, nothing)

    def keep(self, numbers: Int64, draft: Draft) -> None:
        """Remember the slots of these requests, and of no others."""
        self._rows = {number: draft.memory[slot].copy() for slot, number in enumerate(numbers.tolist())}


def _floats(values: Float64) -> Float64:
    return np.array(values, dtype=np.float64, order="C")


def _ints(values: NDArray[Any]) -> Int32:
    return np.array(values, dtype=np.int32, order="C")

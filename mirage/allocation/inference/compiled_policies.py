"""Policies that the kernel knows by number: it runs whole replays with them; the gateway calls the same code.

They read a ``SystemView`` as the kernel's ``Look``: its ready requests take the first slots, in their order;
running requests take the following ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.encode import least_seconds
from mirage.allocation.inference.kernel.deciding import (
    EDF,
    FCFS,
    LATE_LAST,
    LLF,
    PARAMETERS,
    SJF,
    SPARE,
    WAIT,
    decide,
)
from mirage.allocation.inference.kernel.layout import MEMORY, POPULATION, STATE, WINDOW, DispatchDraft, Look
from mirage.domain.inference import Dispatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from mirage.domain.inference import CostTable, Float64, Int32, Int64, SystemView

_FLOAT, _INT, _LONG = np.dtype(np.float64), np.dtype(np.int32), np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Costs:
    """A cost table in the form that the kernel reads, with derived values."""

    table: CostTable
    first: Int32
    seconds: Float64
    compute_seconds: Float64
    joules: Float64
    dram_bytes: Float64
    remaining: Float64
    least: Float64


def read_costs(table: CostTable) -> Costs:
    """Compute the derived values of a table, once for all views of it."""
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
    """The view, with which it shares some arrays: valid as long as the view is."""
    units = np.flatnonzero(view.running >= 0)
    piece = view.running_piece[units]
    unknown = np.zeros(len(units))
    return Look(
        ready=np.arange(len(view.request)),
        arrival=_joined(view.arrival, unknown, _FLOAT),
        deadline=_joined(view.deadline, view.running_deadline[units], _FLOAT),
        weight=_joined(view.weight, view.running_weight[units], _FLOAT),
        model=_joined(view.model, np.searchsorted(costs.first, piece, side="right") - 1, _INT),
        tenant=_joined(view.tenant, unknown, _INT),
        number=_joined(view.request, view.running[units], _LONG),
        piece=_joined(view.piece, piece, _INT),
        ready_since=_joined(view.ready_since, unknown, _FLOAT),
        served=_joined(view.served, unknown, _FLOAT),
        kind=_own(view.system.kind, _INT),
        running=_slots(view, units),
        free_at=_own(view.free_at, _FLOAT),
        drawn=_own(view.drawn, _FLOAT),
        tenant_ended=_own(view.tenant_ended, _LONG),
        tenant_kept=_own(view.tenant_kept, _LONG),
        seconds=costs.seconds,
        compute_seconds=costs.compute_seconds,
        joules=costs.joules,
        dram_bytes=costs.dram_bytes,
        remaining=costs.remaining,
        first=costs.first,
        least=costs.least,
        bandwidth=float(view.system.bandwidth),
    )


def new_draft(slots: int, units: int) -> DispatchDraft:
    """Working memory for this many requests, ready or not; without state."""
    return DispatchDraft(
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
class Desk:
    """Cached costs, and working memory that grows with the number of requests."""

    _costs: Costs | None = None
    _draft: DispatchDraft | None = None

    def look(self, view: SystemView) -> Look:
        """Return ``look_at`` of a view with the cached costs."""
        if self._costs is None or self._costs.table is not view.costs:
            self._costs = read_costs(view.costs)
        return look_at(view, self._costs)

    def draft(self, look: Look) -> DispatchDraft:
        """Working memory for it; the state of a policy is copied when it grows."""
        slots, units, before = len(look.number), len(look.kind), self._draft
        if before is not None and len(before.key) >= slots and len(before.unit) == units:
            return before
        grown = new_draft(2 * slots, units)
        if before is not None:
            grown = grown._replace(state=before.state, genes=before.genes)
        self._draft = grown
        return grown


@dataclass(slots=True)
class Memory:
    """State of a policy about requests, whose slots change from view to view."""

    _rows: dict[int, Float64] = field(default_factory=dict)

    def recall(self, numbers: Int64, draft: DispatchDraft) -> None:
        """Copy the state of these requests to their slots; 0 for new ones."""
        nothing = np.zeros(MEMORY)
        for slot, number in enumerate(numbers.tolist()):
            draft.memory[slot] = self._rows.get(number, nothing)

    def keep(self, numbers: Int64, draft: DispatchDraft) -> None:
        """Save the state of these slots, and discard all other."""
        self._rows = {number: draft.memory[slot].copy() for slot, number in enumerate(numbers.tolist())}


def _slots(view: SystemView, units: NDArray[np.intp]) -> Int64:
    """Running requests stand behind ready ones, in the order of their units."""
    running = np.full(len(view.running), -1, np.int64)
    running[units] = len(view.request) + np.arange(len(units))
    return running


def _joined(ready: NDArray[Any], running: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return _own(np.concatenate((ready, running)) if len(running) else ready, dtype)


def _own(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array for compiled code: copied only if necessary, because most decisions are about few requests."""
    flags = values.flags
    if values.dtype == dtype and flags.c_contiguous and flags.writeable:
        return values
    return np.array(values, dtype, order="C")


def _floats(values: Float64) -> Float64:
    return np.array(values, dtype=np.float64, order="C")


def _ints(values: NDArray[Any]) -> Int32:
    return np.array(values, dtype=np.int32, order="C")


class CompiledPolicy:
    """One of ``kernel.deciding``."""

    period = 0.0

    def __init__(self, name: str, code: int, parameters: Mapping[int, float], *, remembers: bool = False) -> None:
        """``parameters``: by place, the others 0. ``remembers``: whether it keeps state for each request."""
        self.name, self.code = name, code
        self.parameters: Float64 = np.zeros(PARAMETERS)
        for place, value in parameters.items():
            self.parameters[place] = value
        self._remembers = remembers
        self.begin()

    @property
    def keeps_order(self) -> bool:
        """Whether two waiting requests keep their order, except for ``late-last``, and none waits for a unit."""
        return self.code in (FCFS, EDF, LLF, SJF) and self.parameters[WAIT] == 0.0

    @property
    def puts_late_last(self) -> bool:
        """Whether requests that can no longer meet their deadline come behind all others."""
        return bool(self.parameters[LATE_LAST] > 0.0)

    @property
    def spares_bandwidth(self) -> bool:
        """Whether no request begins while the running ones use all of the bandwidth."""
        return bool(self.parameters[SPARE] > 0.0)

    def begin(self) -> None:
        """See ``ports.RequestPolicy``."""
        self._desk, self._memory = Desk(), Memory()

    def decide(self, view: SystemView) -> Dispatch:
        """See ``ports.RequestPolicy``."""
        look = self._desk.look(view)
        draft = self._desk.draft(look)
        if self._remembers:
            self._memory.recall(look.number, draft)
        count = self.ask(look, view.now, len(view.request), draft)
        if self._remembers:
            self._memory.keep(look.number, draft)
        return Dispatch(draft.ready[:count].copy(), draft.unit[:count].copy())

    def ask(self, look: Look, now: float, count: int, draft: DispatchDraft) -> int:
        """``kernel.deciding.decide`` by this policy."""
        return decide(self.code, self.parameters, look, now, count, draft)

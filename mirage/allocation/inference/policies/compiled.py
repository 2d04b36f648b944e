"""Policies that are a number to the kernel: it plays whole runs by them, the gateway asks the same function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
from mirage.allocation.inference.policies.looking import Costs, Memory, look_at, new_draft, read_costs
from mirage.domain.units import Dispatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.allocation.inference.kernel.look import Draft, Look
    from mirage.domain.request import CostTable, Float64
    from mirage.domain.units import SystemView


class CompiledPolicy:
    """One of ``kernel.deciding``."""

    period = 0.0

    def __init__(self, name: str, code: int, parameters: Mapping[int, float], *, remembers: bool = False) -> None:
        """``parameters``: by place, the others 0. ``remembers``: it keeps something for each request."""
        self.name, self.code = name, code
        self.parameters: Float64 = np.zeros(PARAMETERS)
        for place, value in parameters.items():
            self.parameters[place] = value
        self._remembers = remembers
        self.begin()

    @property
    def keeps_order(self) -> bool:
        """Whether two that wait stay in the same order, but for ``late-last``; and nobody waits for a unit."""
        return self.code in (FCFS, EDF, LLF, SJF) and self.parameters[WAIT] == 0.0

    @property
    def puts_late_last(self) -> bool:
        """Whether those that can keep their deadline no more come behind all others."""
        return bool(self.parameters[LATE_LAST] > 0.0)

    @property
    def spares_bandwidth(self) -> bool:
        """Whether nothing begins while what runs wants all of the bandwidth."""
        return bool(self.parameters[SPARE] > 0.0)

    def begin(self) -> None:
        """See ``ports.RequestPolicy``."""
        self._costs: Costs | None = None
        self._draft: Draft | None = None
        self._memory = Memory()

    def decide(self, view: SystemView) -> Dispatch:
        """See ``ports.RequestPolicy``."""
        look = look_at(view, self._read(view.costs))
        draft = self._room(len(look.number), len(look.kind))
        if self._remembers:
            self._memory.recall(look.number, draft)
        count = self.ask(look, view.now, len(view.request), draft)
        if self._remembers:
            self._memory.keep(look.number, draft)
        return Dispatch(draft.ready[:count].copy(), draft.unit[:count].copy())

    def ask(self, look: Look, now: float, count: int, draft: Draft) -> int:
        """As ``kernel.deciding.decide``, by this policy."""
        return decide(self.code, self.parameters, look, now, count, draft)

    def _read(self, table: CostTable) -> Costs:
        if self._costs is None or self._costs.table is not table:
            self._costs = read_costs(table)
        return self._costs

    def _room(self, slots: int, units: int) -> Draft:
        """Working memory; what it remembers as a whole goes along when it grows."""
        draft = self._draft
        if draft is None or len(draft.key) < slots or len(draft.unit) != units:
            self._draft = new_draft(2 * slots, units)
            if draft is not None:
                self._draft = self._draft._replace(state=draft.state, genes=draft.genes)
        assert self._draft is not None
        return self._draft

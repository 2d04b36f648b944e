"""Policies that the kernel knows by number: it runs whole replays with them; the gateway calls the same code."""

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
from mirage.allocation.inference.policies.looking import Desk, Memory
from mirage.domain.units import Dispatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.allocation.inference.kernel.look import Draft, Look
    from mirage.domain.request import Float64
    from mirage.domain.units import SystemView


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

    def ask(self, look: Look, now: float, count: int, draft: Draft) -> int:
        """``kernel.deciding.decide`` by this policy."""
        return decide(self.code, self.parameters, look, now, count, draft)

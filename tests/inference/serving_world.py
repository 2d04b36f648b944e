"""A request queue without a gateway, and rules so plain that their results are evident."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.serving.request_queue import RequestQueue
from mirage.allocation.inference.serving.seating import Estimates
from mirage.domain.inference import DeviceSet, Dispatch

if TYPE_CHECKING:
    from mirage.domain.inference import SystemView

MODELS = ("small", "large", "speech")
KINDS = ("fast", "slow")
ABLE = np.array([[True, True], [True, False], [False, True]])


def make_system() -> DeviceSet:
    """Two units of each kind."""
    return DeviceSet(("f0", "f1", "s0", "s1"), np.array([0, 0, 1, 1], np.int32), math.inf, np.zeros(2))


def make_desk(most: int = 6, longest_wait: float = 30.0, tenants: int = 2) -> RequestQueue:
    estimates = Estimates(MODELS, KINDS, ABLE, np.array([10.0, 5.0]), {("small", "fast"): 0.01})
    return RequestQueue(make_system(), estimates, tenants, most, longest_wait)


class FirstCome:
    """The first that came begins on the first free unit that can."""

    name = "first-come"
    period = 0.0

    def begin(self) -> None:
        """Nothing is kept."""

    def decide(self, view: SystemView) -> Dispatch:
        free = [u for u in range(len(view.running)) if view.running[u] < 0 and view.free_at[u] <= view.now]
        ready, unit = [], []
        for row in range(len(view.request)):
            able = [u for u in free if not math.isnan(view.costs.seconds[view.model[row], view.system.kind[u]])]
            if able:
                free.remove(able[0])
                ready.append(row)
                unit.append(able[0])
        return Dispatch(np.array(ready, np.int32), np.array(unit, np.int32))

"""Policies in a few plain lines, to play with and to compare against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.inference import Dispatch

if TYPE_CHECKING:
    from mirage.domain.inference import SystemView


class PlainOrder:
    """The first ready requests by a key, each on the first free unit that can run it."""

    period = 0.0

    def __init__(self, key: str = "request") -> None:
        self.name, self.key = key, key

    def begin(self) -> None:
        pass

    def decide(self, view: SystemView) -> Dispatch:
        pairs: list[tuple[int, int]] = []
        free = [u for u in range(len(view.running)) if view.running[u] < 0]
        for row in np.argsort(getattr(view, self.key), kind="stable"):
            able = [u for u in free if not np.isnan(view.costs.seconds[view.piece[row], view.system.kind[u]])]
            if able:
                pairs.append((int(row), able[0]))
                free.remove(able[0])
        rows, units = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
        return Dispatch(rows, units)


class Waiting:
    """Begins nothing."""

    name = "waiting"

    def __init__(self, period: float = 0.0) -> None:
        self.period = period

    def begin(self) -> None:
        pass

    def decide(self, view: SystemView) -> Dispatch:
        return Dispatch(np.zeros(0, np.int32), np.zeros(0, np.int32))

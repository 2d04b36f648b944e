"""Detect nodes that reject steps repeatedly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_MOST = 3


@dataclass(slots=True)
class Refusals:
    """Rejections in a row, by node."""

    nodes: tuple[str, ...]
    _counts: Counter[str] = field(default_factory=Counter)

    def note(self, node: str, why: str) -> str:
        """Count a rejection and its reason, or a granted step. Returns why the node gets no more steps, or "".

        If every node rejects, the nodes are not the cause.
        """
        self._counts[node] = self._counts[node] + 1 if why else 0
        others = any(self._counts[other] == 0 for other in self.nodes if other != node)
        blamed = self._counts[node] >= _MOST and others
        return f"the node rejected {self._counts[node]} steps in a row: {why}" if blamed else ""

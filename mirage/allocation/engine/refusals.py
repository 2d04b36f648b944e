"""Nodes that reject steps repeatedly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_MOST = 3


@dataclass(slots=True)
class Refusals:
    """By node, in a row."""

    nodes: tuple[str, ...]
    _counts: Counter[str] = field(default_factory=Counter)

    def note(self, node: str, why: str) -> str:
        """It has rejected a step, for a reason, or granted one; why it is to get none any more, or nothing.

        Where every node rejects, it is not the nodes.
        """
        self._counts[node] = self._counts[node] + 1 if why else 0
        others = any(self._counts[other] == 0 for other in self.nodes if other != node)
        blamed = self._counts[node] >= _MOST and others
        return f"{self._counts[node]} steps in a row were rejected: {why}" if blamed else ""

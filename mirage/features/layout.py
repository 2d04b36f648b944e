"""What the numbers of a feature vector are called, and the mark by which model and encoder know each other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.decision import Wants


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """A vector of ``steps * len(sequence) + len(static)`` float32: the steps first, oldest first, row by row."""

    name: str
    version: int
    """Raised whenever a number under the same name would come out differently."""
    sequence: tuple[str, ...]
    """Columns of every step."""
    steps: int
    static: tuple[str, ...]
    """Columns that stand once, after the steps."""
    wants: Wants
    """What an observation must bring."""

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.steps * len(self.sequence) + len(self.static)

    @property
    def names(self) -> tuple[str, ...]:
        """One for each number of the vector; ``idle[-3]`` is the column ``idle`` three steps before the last."""
        steps = range(1 - self.steps, 1)
        return (*(f"{column}[{step}]" for step in steps for column in self.sequence), *self.static)

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the canonical description: equal where vectors mean the same."""
        description = [self.name, self.version, self.steps, list(self.sequence), list(self.static)]
        return sha256(json.dumps(description, separators=(",", ":")).encode()).hexdigest()

"""How long to learn, and what was learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class Course:
    """At most so long where there is a validation; exactly so long where there is none."""

    epochs: int
    """Of supervised training before reinforcement learning."""
    steps: int
    """Of the environment, all handovers next to each other counted."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A network that scores (hold, submit), and how it came about."""

    network: nn.Module
    course: Course
    """With which the network was found that did best on validation."""
    curves: dict[str, list[float]]

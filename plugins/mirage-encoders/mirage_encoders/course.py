"""Length of a training, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class Course:
    """Most steps with a validation set; exact number of steps without one."""

    epochs: int
    """Epochs of supervised training before reinforcement learning."""
    steps: int
    """Steps of the environment, summed over all parallel handovers."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A network that scores (hold, submit), and how it was trained."""

    network: nn.Module
    course: Course
    """With which the network was found that did best on validation."""
    curves: dict[str, list[float]]

"""Learning curves, early stopping, and the choice of the best state by a validation span."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from mirage_encoders.judging import mean_cost, scores

if TYPE_CHECKING:
    from torch import nn

    from mirage.plugin import Table, Weights

SAMPLE = 200
"""Number of sampled handovers of the training table."""


@dataclass(frozen=True, slots=True)
class Patience:
    """When to validate, and when to stop."""

    every: int
    """Environment steps between validations."""
    looks: int
    """Validations without an improvement after which training ends."""


class Judge:
    """Judges a network periodically on whole tables, exactly; keeps the state that is best on validation.

    Without a validation set, training continues to its end.
    """

    def __init__(
        self, network: nn.Module, tables: tuple[Table, Table | None], weights: Weights, patience: Patience
    ) -> None:
        """``network`` scores (hold, submit); ``tables`` are for training and for validation."""
        training, self._validation = tables
        self._sample = training.take(np.arange(0, len(training), max(1, len(training) // SAMPLE)))
        self._network, self._weights, self._patience = network, weights, patience
        self._next = 0
        self._best: dict[str, Any] = {}
        self._best_at = 0
        self.curves: dict[str, list[float]] = {"steps": [], "training_cost": [], "validation_cost": []}
        """At each validation: the environment's steps until then, and the mean cost of a handover, in weighted
        hours, on a sample of the training set and on the validation set."""

    def look(self, steps: int) -> bool:
        """Validate if it is due at this number of steps; returns whether to continue training."""
        if self._validation is None:
            return True
        if steps >= self._next:
            self._judge(steps, self._validation)
            self._next = steps + self._patience.every
        looks, costs = len(self.curves["steps"]), self.curves["validation_cost"]
        # A policy that decides nothing yet, at its initial cost, has not converged.
        return looks - 1 - self._best_at < self._patience.looks or max(costs) == min(costs)

    def restore(self, steps: int) -> int:
        """Restore the network's best state, or that after ``steps`` without a validation set.

        Returns the steps that it took.
        """
        if self._validation is None:
            return steps
        self._network.load_state_dict(self._best)
        return int(self.curves["steps"][self._best_at])

    def _judge(self, steps: int, validation: Table) -> None:
        trained, validated = (
            mean_cost(scores(self._network, table), table, self._weights) for table in (self._sample, validation)
        )
        for name, value in (("steps", steps), ("training_cost", trained), ("validation_cost", validated)):
            self.curves[name].append(value)
        if not self._best or validated < self.curves["validation_cost"][self._best_at]:
            self._best, self._best_at = deepcopy(self._network.state_dict()), len(self.curves["steps"]) - 1


class Selection(BaseCallback):
    """Validates while a model of stable-baselines3 trains."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self._judge = judge

    def _on_training_start(self) -> None:
        self._judge.look(0)

    def _on_step(self) -> bool:
        return self._judge.look(self.num_timesteps)

"""Pretraining, learning curves, early stopping, and the choice of the best state by a validation span.

States are judged by the exact result of a policy on a table: where it first submits, and the return there.

Pretraining learns quantiles of the wait if submitted now. The Mirage paper, too, trains its transformer on waits
before reinforcement learning begins. The head that is trained here is thrown away; what remains is an encoder that
knows how long the queue is.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from torch import Tensor, nn

from mirage.plugin import Weights

if TYPE_CHECKING:
    from mirage.plugin import Table

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
ROWS_AT_ONCE = 8_192
UNIT = 12 * 3_600.0
"""Targets are in twelve hours."""


@dataclass(frozen=True, slots=True)
class Pretraining:
    """How long and how fast."""

    patience: int = 3
    """Epochs without a better validation after which it ends."""
    rate: float = 5e-4
    decay: float = 0.1
    batch: int = 512


def pretrain(
    encoder: nn.Module, tables: tuple[Table, Table | None], epochs: int, seed: int, options: Pretraining
) -> tuple[int, dict[str, list[float]]]:
    """Train ``encoder`` in place on the first table; returns the epochs it took and its curves, in hours.

    With a second table its best state by that is kept; without one it learns for all ``epochs``.
    """
    model = nn.Sequential(encoder, nn.LazyLinear(len(LEVELS))).to(next(encoder.parameters()).device)
    table, validation = tables
    features, targets = _examples(table)
    model(features[:2].to(next(encoder.parameters()).device))
    optimiser = torch.optim.AdamW(model.parameters(), options.rate, weight_decay=options.decay)
    generator = torch.Generator().manual_seed(seed)
    curves: dict[str, list[float]] = {"pretraining_training": [], "pretraining_validation": []}
    best, kept = 0, deepcopy(encoder.state_dict())
    for epoch in range(1, epochs + 1):
        batches = torch.split(torch.randperm(len(targets), generator=generator), options.batch)
        losses = [_learn(model, optimiser, features[rows], targets[rows]) for rows in batches]
        curves["pretraining_training"].append(12 * float(np.mean(losses)))
        if validation is not None:
            curves["pretraining_validation"].append(12 * _validated(model, validation))
        if validation is None or curves["pretraining_validation"][-1] <= min(curves["pretraining_validation"]):
            best, kept = epoch, deepcopy(encoder.state_dict())
        if epoch - best >= options.patience:
            break
    encoder.load_state_dict(kept)
    return best, curves


def _learn(model: nn.Module, optimiser: torch.optim.Optimizer, features: Tensor, targets: Tensor) -> float:
    model.train()
    device = next(model.parameters()).device
    loss = _pinball(model(features.to(device)), targets.to(device))
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return float(loss.detach())


def _examples(table: Table) -> tuple[Tensor, Tensor]:
    targets = torch.from_numpy((table.x / UNIT).astype(np.float32).ravel())
    return torch.from_numpy(table.features.reshape(-1, table.schema.size)), targets


def _pinball(said: Tensor, truth: Tensor) -> Tensor:
    """Mean pinball loss of quantiles, shape (batch, levels), against (batch,) (Koenker & Bassett, 1978).

    As ``mirage.domain.quantileloss``, by torch, which derives it.
    """
    levels = torch.tensor(LEVELS, device=said.device)
    over = truth.unsqueeze(1) - said
    return torch.maximum(levels * over, (levels - 1) * over).mean()


def _validated(model: nn.Module, table: Table) -> float:
    model.eval()
    device = next(model.parameters()).device
    features, targets = _examples(table)
    with torch.no_grad():
        parts = zip(torch.split(features, ROWS_AT_ONCE), torch.split(targets, ROWS_AT_ONCE), strict=True)
        losses = [float(_pinball(model(f.to(device)), t.to(device))) * len(t) for f, t in parts]
    return sum(losses) / len(targets)


def silence() -> Logger:
    """For ``set_logger``: the default logger of stable-baselines3 leaves a directory behind in
    ``/tmp``."""
    return Logger(folder=None, output_formats=[])


Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]

EQUAL_WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class Leads:
    """Seconds before the predecessor's end within which a policy decides."""

    least: int = 0
    """From here on it holds no more."""
    most: int = 1 << 40
    """Before this it never submits."""


NO_LEADS = Leads()


def scores(network: nn.Module, table: Table) -> Float32:
    """Scores of (hold, submit) at every point of a table, shape (E, G, 2). The network is left in evaluation."""
    network.eval()
    device = next(network.parameters()).device
    flat = torch.from_numpy(table.features.reshape(-1, table.schema.size))
    with torch.no_grad():
        parts = [network(part.to(device)).cpu().numpy() for part in torch.split(flat, ROWS_AT_ONCE)]
    return np.concatenate(parts).astype(np.float32).reshape(*table.submit.shape, 2)


def first_submission(said: Float32, table: Table, leads: Leads = NO_LEADS) -> Int64:
    """The point at which each handover is submitted, shape (E,), for scores of shape (E, G, 2)."""
    lead = table.end[:, None] - table.submit
    submit = (said[..., 1] >= said[..., 0]) & (lead <= leads.most) | (lead <= leads.least)
    submit[:, -1] = True
    return np.asarray(submit.argmax(axis=1), dtype=np.int64)


def mean_cost(said: Float32, table: Table, weights: Weights = EQUAL_WEIGHTS, leads: Leads = NO_LEADS) -> float:
    """What a handover costs in the mean, weighted hours; with equal weights the mean of |x|."""
    return -float(table.returns_of(first_submission(said, table, leads), weights).mean())


SAMPLE = 200
"""Number of sampled handovers of the training table."""


@dataclass(frozen=True, slots=True)
class ValidationSchedule:
    """When to validate, and when to stop."""

    every: int
    """Environment steps between validations."""
    looks: int
    """Validations without an improvement after which training ends."""


class StateJudge:
    """Judges a network periodically on whole tables, exactly; keeps the state that is best on validation.

    Without a validation set, training continues to its end.
    """

    def __init__(
        self,
        network: nn.Module,
        tables: tuple[Table, Table | None],
        weights: Weights,
        patience: ValidationSchedule,
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


class SelectionCallback(BaseCallback):
    """Validates while a model of stable-baselines3 trains."""

    def __init__(self, judge: StateJudge) -> None:
        super().__init__()
        self._judge = judge

    def _on_training_start(self) -> None:
        self._judge.look(0)

    def _on_step(self) -> bool:
        return self._judge.look(self.num_timesteps)

"""Policy gradients that decide when to submit: PPO, and REINFORCE with exact expectations.

An action does not change the queue. A handover of a table is therefore one known path, on which a policy
that submits with probability p_k at point k (1 at the last) earns

    J = sum_k  p_k * prod_{j<k} (1 - p_j) * R_k.

REINFORCE (Williams, Machine Learning 8, 1992) estimates the gradient of J from drawn actions; here J itself is
differentiated, the actions summed over instead of drawn. It is the all-actions policy gradient (Sutton et al.,
NeurIPS 1999) with the true values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from mirage_encoders.networks import EncoderOptions, policy_arguments
from mirage_encoders.selection import (
    Pretraining,
    SelectionCallback,
    StateJudge,
    ValidationSchedule,
    pretrain,
    silence,
)
from mirage_encoders.trainer import LearnedScores, ScoreTrainer, TrainingLength
from mirage_encoders.vector import HOURS, TableVecEnv
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mirage.plugin import ConfigError, Weights
from mirage_policy_gradient import NAME, VERSION

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy

    from mirage.plugin import Table


def expected_return(logits: Tensor, returns: Tensor) -> Tensor:
    """J of each handover, shape (E,), for logits of (hold, submit), (E, G, 2), and returns R, (E, G).

    The last point's logits do not matter: submission is forced there.
    """
    chances = torch.log_softmax(logits, dim=-1)
    hold, submit = chances[:, :-1, 0], chances[:, :-1, 1]
    none = torch.zeros_like(hold[:, :1])
    until = torch.cat([none, hold.cumsum(dim=1)], dim=1)
    stopping = (until + torch.cat([submit, none], dim=1)).exp()
    return (stopping * returns).sum(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the decisions, in nats."""
    chances = torch.log_softmax(logits[:, :-1], dim=-1)
    return -(chances.exp() * chances).sum(dim=-1).mean()


class ExportedActor(nn.Module):
    """Shares its parameters with the policy."""

    def __init__(self, policy: ActorCriticPolicy) -> None:
        super().__init__()
        self.encoding = policy.features_extractor
        self.hidden = policy.mlp_extractor.policy_net
        assert isinstance(policy.action_net, nn.Linear), "one score for each of two actions"
        self.last = policy.action_net

    def forward(self, features: Tensor) -> Tensor:
        """Shape (batch, 2)."""
        logits: Tensor = self.last(self.hidden(self.encoding(features)))
        return logits

    def begin_at(self, chance: float) -> None:
        """Initialise every decision with about this probability of submission."""
        with torch.no_grad():
            self.last.bias.copy_(torch.tensor([0.0, math.log(chance / (1 - chance))]))


ALGORITHMS = ("ppo", "reinforce")


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Hyperparameters. Steps are those of the environment, summed over all parallel handovers."""

    algorithm: str = "reinforce"
    """One of ``ALGORITHMS``."""
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    pretraining: Pretraining = field(default_factory=Pretraining)
    envs: int = 64
    """Parallel handovers; for ``reinforce`` those in one batch."""
    rollout: int = 96
    """Steps of each environment between updates (``ppo``)."""
    epochs: int = 4
    """Passes over each rollout (``ppo``)."""
    batch: int = 2_048
    """Steps in a batch (``ppo``)."""
    rate: float = 1e-3
    decay: float = 0.1
    entropy: float = 0.003
    """Value of a nat of entropy: prevents a policy from converging too early."""
    smoothing: float = 0.95
    """Share of the mean network that stays at each update (``reinforce``) or rollout (``ppo``)."""
    submit_chance: float = 0.02
    """Initial probability of submission at every decision: a policy that submits early sees no late state."""
    patience: ValidationSchedule = field(default_factory=lambda: ValidationSchedule(every=50_000, looks=12))
    weights: Weights = field(default_factory=Weights)

    def check(self) -> None:
        """Raise ``ConfigError`` for an algorithm or a network that does not exist."""
        self.encoder.check()
        if self.algorithm not in ALGORITHMS:
            raise ConfigError(
                "policy-gradient", f"unknown algorithm {self.algorithm!r} (choose from {', '.join(ALGORITHMS)})"
            )


def learn(
    table: Table, validation: Table | None, seed: int, course: TrainingLength, options: PolicyOptions
) -> LearnedScores:
    """Train on ``table``, choose the state by ``validation``; without it, train for the length of ``course``.

    The result is the mean of the network over its last updates (Polyak & Juditsky, 1992).
    """
    options.check()
    model = _model(table, seed, options)
    model.set_logger(silence())
    actor = ExportedActor(model.policy)
    epochs, before = pretrain(actor.encoding, (table, validation), course.epochs, seed, options.pretraining)
    actor.begin_at(options.submit_chance)
    mean = AveragedModel(actor, multi_avg_fn=_keeping(options.smoothing))
    judge = StateJudge(mean.module, (table, validation), options.weights, options.patience)
    if options.algorithm == "reinforce":
        _reinforce(actor, mean, table, judge, seed, course.steps, options)
    else:
        model.learn(course.steps, CallbackList([_Averaging(actor, mean), SelectionCallback(judge)]))
    steps = judge.restore(course.steps)
    return LearnedScores(mean.module, TrainingLength(epochs, steps), before | judge.curves)


def _model(table: Table, seed: int, options: PolicyOptions) -> PPO:
    envs = TableVecEnv(table, options.envs, seed, weights=options.weights)
    optimiser = {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": options.decay}}
    return PPO(
        "MlpPolicy",
        envs,
        learning_rate=options.rate,
        n_steps=options.rollout,
        batch_size=options.batch,
        n_epochs=options.epochs,
        gamma=1.0,
        gae_lambda=0.97,
        ent_coef=options.entropy,
        policy_kwargs=policy_arguments(table, options.encoder) | {"net_arch": [64]} | optimiser,
        seed=seed,
    )


def _keeping(share: float) -> Any:
    return get_ema_multi_avg_fn(share)  # type: ignore[no-untyped-call]  # not declared by torch


class _Averaging(BaseCallback):
    """Adds the network of each rollout to the mean."""

    def __init__(self, actor: ExportedActor, mean: AveragedModel) -> None:
        super().__init__()
        self._actor, self._mean = actor, mean

    def _on_rollout_start(self) -> None:
        self._mean.update_parameters(self._actor)

    def _on_step(self) -> bool:
        return True


def _reinforce(
    actor: ExportedActor,
    mean: AveragedModel,
    table: Table,
    judge: StateJudge,
    seed: int,
    most: int,
    options: PolicyOptions,
) -> None:
    """Ascend the expected return of batches of whole handovers; a step is a point of the grid."""
    device = next(actor.parameters()).device
    optimiser = torch.optim.AdamW(actor.parameters(), options.rate, weight_decay=options.decay)
    random = np.random.default_rng(seed)
    returns = torch.from_numpy((table.returns(options.weights) / HOURS).astype(np.float32))
    steps, batch = 0, min(options.envs, len(table))
    while judge.look(steps) and steps < most:
        actor.train()
        chosen = random.choice(len(table), batch, replace=False)
        seen = torch.from_numpy(table.features[chosen]).to(device)
        logits = actor(seen.flatten(0, 1)).unflatten(0, seen.shape[:2])
        gain = expected_return(logits, returns[chosen].to(device)).mean() + options.entropy * entropy(logits)
        optimiser.zero_grad()
        torch.autograd.backward(-gain)
        torch.nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
        optimiser.step()
        mean.update_parameters(actor)
        steps += logits.shape[0] * logits.shape[1]


def trainer(kind: str, algorithm: str) -> ScoreTrainer:
    """The trainer with an encoder of this kind. Raises ``ConfigError`` for an unknown kind."""
    options = PolicyOptions(algorithm, EncoderOptions(kind))
    options.check()
    course = TrainingLength(epochs=10, steps=3_000_000)

    return ScoreTrainer(NAME, VERSION, partial(learn, options=options), course, options.weights)

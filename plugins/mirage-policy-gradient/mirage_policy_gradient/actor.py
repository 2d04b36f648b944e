"""The exported part of an actor-critic policy: from raw vectors to the logits of holding and submitting."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy


class Actor(nn.Module):
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

"""Mirage predictor ``policy-gradient``: when to submit, learned by policy gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.plugin import artifact_factory, training_libraries

if TYPE_CHECKING:
    from mirage.plugin import Trainer

NAME = "policy-gradient"
VERSION = "0.1.0"

predictor = artifact_factory(NAME)


def mlp_trainer() -> Trainer:
    """The trainer with a perceptron as encoder. Raises ``MissingExtra`` without the extra ``train``."""
    return _trainer("mlp")


def transformer_trainer() -> Trainer:
    """The same with a transformer over the steps of the sequence."""
    return _trainer("transformer")


def moe_trainer() -> Trainer:
    """The same with a mixture of experts and a gate."""
    return _trainer("moe")


def ppo_trainer() -> Trainer:
    """The trainer by PPO (Schulman et al., 2017) with a perceptron; the others are by REINFORCE."""
    return _trainer("mlp", "ppo")


def _trainer(kind: str, algorithm: str = "reinforce") -> Trainer:
    with training_libraries("mirage-policy-gradient"):
        from mirage_policy_gradient.learning import trainer
    return trainer(kind, algorithm)

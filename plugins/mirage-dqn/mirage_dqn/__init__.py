"""Mirage predictor ``dqn``: when to submit, learned by a deep Q-network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.plugin import artifact_factory, training_libraries

if TYPE_CHECKING:
    from mirage.plugin import Trainer

NAME = "dqn"
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


def _trainer(kind: str) -> Trainer:
    with training_libraries("mirage-dqn"):
        from mirage_dqn.learning import trainer
    return trainer(kind)

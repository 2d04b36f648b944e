"""Mirage predictor ``random-forest``: the distribution of the wait by a quantile regression forest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.plugin import artifact_factory, training_libraries

if TYPE_CHECKING:
    from mirage.plugin import Trainer

NAME = "random-forest"

predictor = artifact_factory(NAME)


def trainer() -> Trainer:
    """The trainer. Raises ``MissingExtra`` without the extra ``train``."""
    with training_libraries("mirage-random-forest"):
        from mirage_random_forest.training import ForestTrainer

    return ForestTrainer()

"""Mirage predictor ``xgboost``: quantiles of the wait by gradient-boosted trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.plugin import artifact_factory, training_libraries

if TYPE_CHECKING:
    from mirage.plugin import Trainer

NAME = "xgboost"

predictor = artifact_factory(NAME)


def trainer() -> Trainer:
    """The trainer. Raises ``MissingExtra`` without the extra ``train``."""
    with training_libraries("mirage-xgboost"):
        from mirage_xgboost.training import XGBoostTrainer

    return XGBoostTrainer()

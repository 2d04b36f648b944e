"""Mirage predictor ``xgboost``: quantiles of the wait by gradient-boosted trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.plugin import artifact_factory

if TYPE_CHECKING:
    from mirage.plugin import Trainer

NAME = "xgboost"

predictor = artifact_factory(NAME)


def trainer() -> Trainer:
    """Learns it. Needs the extra ``train``."""
    from mirage_xgboost.training import XGBoostTrainer

    return XGBoostTrainer()

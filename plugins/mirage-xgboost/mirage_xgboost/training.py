"""Train quantiles of the wait: one ensemble of boosted trees for each, grown together."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from mirage.plugin import (
    ConfigError,
    Learnt,
    Table,
    Tree,
    WaitQuantiles,
    Weights,
    forecast_scores,
    stacked_tables,
    trees_graph,
    write_artifact,
)
from mirage_xgboost import NAME

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "0.1.0"
HOUR = 3_600
LEVELS = (0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9)

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BoostingSettings:
    """Settings chosen on a validation set; others are XGBoost's defaults."""

    rounds: int = 400
    """Most rounds; each grows a tree for every level."""
    patience: int = 30
    """Rounds without a better validation after which training ends."""
    thin: int = 3
    """Use every N-th submit time only: neighbouring ones see almost the same queue."""
    learning_rate: float = 0.1
    depth: int = 6
    least_in_leaf: int = 60
    rows: float = 0.3
    """Share of the rows that each tree sees."""
    columns: float = 0.3
    """Share of the features that each tree sees."""
    bins: int = 64


class XGBoostTrainer:
    """Boosted trees under the quantile loss, on log(1 + hours of wait)."""

    def __init__(self, settings: BoostingSettings | None = None) -> None:
        self._settings = settings or BoostingSettings()

    def train(self, table: Table, validation: Table, seed: int, out: Path) -> Path:
        """Grow trees while the validation improves, then as many again from all handovers together."""
        if not len(table) or not len(validation):
            raise ConfigError(NAME, "needs training handovers and later validation handovers; widen the span")
        booster, curves = self._boosted(table, seed, self._settings.rounds, validation)
        rounds = booster.best_iteration + 1
        answers = WaitQuantiles(LEVELS)
        hours = answers.quantiles(np.expm1(_predicted(booster, _features(validation), rounds)))
        scores = forecast_scores(validation, hours.reshape(*validation.submit.shape, -1), LEVELS, Weights())
        both = stacked_tables([table, validation])
        final, _ = self._boosted(both, seed, rounds)
        learnt = Learnt(
            plugin=NAME,
            plugin_version=VERSION,
            model=boosted_graph(final, rounds),
            answers=answers,
            seeds=(seed,),
            metrics=scores | {"rounds": rounds},
            curves=curves,
            weight=_gains(final),
            packages=("xgboost",),
        )
        return write_artifact(out, learnt, both)

    def _boosted(
        self, table: Table, seed: int, rounds: int, validation: Table | None = None
    ) -> tuple[Any, dict[str, list[float]]]:
        """A booster, and its loss on both spans by round where there is a validation."""
        data = self._matrix(table)
        watched = [(data, "train")]
        if validation is not None:
            watched.append((self._matrix(validation, data), "validation"))
        history: dict[str, dict[str, list[float]]] = {}
        booster = xgboost.train(
            self._parameters(seed),
            data,
            rounds,
            evals=watched if validation is not None else (),
            evals_result=history,
            early_stopping_rounds=self._settings.patience if validation is not None else None,
            verbose_eval=False,
        )
        return booster, {f"{span}_pinball": curve for span, found in history.items() for curve in found.values()}

    def _matrix(self, table: Table, like: Any = None) -> Any:
        thin = slice(None, None, self._settings.thin)
        features = table.features[:, thin].reshape(-1, table.features.shape[-1])
        wait = np.log1p(table.wait[:, thin].ravel() / HOUR)
        return xgboost.QuantileDMatrix(features, wait, max_bin=self._settings.bins, ref=like)

    def _parameters(self, seed: int) -> dict[str, Any]:
        settings = self._settings
        return {
            "objective": "reg:quantileerror",
            "quantile_alpha": np.array(LEVELS),
            "eta": settings.learning_rate,
            "max_depth": settings.depth,
            "min_child_weight": settings.least_in_leaf * settings.rows,
            "subsample": settings.rows,
            "colsample_bytree": settings.columns,
            "max_bin": settings.bins,
            "tree_method": "hist",
            "seed": seed,
        }


def boosted_graph(booster: Any, rounds: int) -> bytes:
    """The first ``rounds`` of a booster as ONNX; it returns hours."""
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    base = np.array(json.loads(learner["learner_model_param"]["base_score"]), dtype=np.float32)
    model = learner["gradient_booster"]["model"]
    grown = zip(model["trees"], model["tree_info"], strict=True)
    count = rounds * len(base)
    trees = [_tree(tree, first) for tree, first in list(grown)[:count]]
    return trees_graph(trees, booster.num_features(), base, compare="<", then="expm1")


def _tree(described: dict[str, Any], first: int) -> Tree:
    """One tree of XGBoost's JSON model, in which the value of a leaf is in the place of a threshold."""
    left = np.array(described["left_children"], dtype=np.int64)
    condition = np.array(described["split_conditions"], dtype=np.float32)
    return Tree(
        feature=np.where(left < 0, -1, np.array(described["split_indices"], dtype=np.int64)),
        threshold=condition,
        left=left,
        right=np.array(described["right_children"], dtype=np.int64),
        value=np.where(left < 0, condition, np.float32(0))[:, None],
        first=first,
    )


def _predicted(booster: Any, features: Float32, rounds: int) -> Float64:
    found = booster.inplace_predict(features, iteration_range=(0, rounds))
    return np.asarray(found, dtype=np.float64)


def _gains(booster: Any) -> Float64:
    """How much each feature's splits have gained."""
    gains = np.zeros(booster.num_features())
    for name, gain in booster.get_score(importance_type="total_gain").items():
        gains[int(name[1:])] = gain
    return gains


def _features(table: Table) -> Float32:
    return table.features.reshape(-1, table.features.shape[-1])

"""Train the distribution of the wait: a quantile regression forest (Meinshausen, JMLR 7, 2006).

Trees are grown as for a regression of log(1 + hours of wait). Then every leaf stores the distribution of the waits
of all its training rows, and the forest returns the mean of the distributions of its trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor

from mirage.plugin import (
    ConfigError,
    Learnt,
    Table,
    Tree,
    WaitDistribution,
    Weights,
    floor32,
    forecast_scores,
    stacked_tables,
    trees_graph,
    write_artifact,
)
from mirage_random_forest import NAME

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "0.1.0"
HOUR = 3_600
HOURS = (
    *(0.0, 0.05, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0),
    *(14.0, 16.0, 18.0, 20.0, 24.0, 28.0, 32.0, 36.0, 42.0, 48.0, 60.0, 72.0, 96.0, 168.0, 720.0),
)
"""Where the distribution is known; closest where decisions fall."""

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ForestSettings:
    """Settings that are not chosen on the validation set."""

    trees: int = 100
    leaves: tuple[int, ...] = (10, 40)
    """Candidates for the fewest rows of a leaf; the best is chosen."""
    rows: int = 8_000
    """Most rows from which a tree is grown: neighbouring submit times see almost the same queue."""
    columns: float = 0.2
    """Share of the features that each split chooses from."""
    step: int = 10
    """Trees between two points of the learning curve."""


class ForestTrainer:
    """A forest whose leaves keep distributions."""

    def __init__(self, settings: ForestSettings | None = None) -> None:
        self._settings = settings or ForestSettings()

    def train(self, table: Table, validation: Table, seed: int, out: Path) -> Path:
        """Choose the leaf size and the number of trees on the validation, then grow these from all handovers."""
        if not len(table) or not len(validation):
            raise ConfigError(NAME, "needs training handovers and later validation handovers; widen the span")
        answers = WaitDistribution(HOURS)
        curves = {leaf: self._curve(table, validation, leaf, seed) for leaf in self._settings.leaves}
        leaf = min(curves, key=lambda size: min(score["pinball"] for score in curves[size]))
        place = int(np.argmin([score["pinball"] for score in curves[leaf]]))
        trees = min((place + 1) * self._settings.step, self._settings.trees)
        both = stacked_tables([table, validation])
        forest = self._grown(both, leaf, seed, trees)
        learnt = Learnt(
            plugin=NAME,
            plugin_version=VERSION,
            model=forest_graph(forest, leaf_masses(forest, _features(both), _wait(both))),
            answers=answers,
            seeds=(seed,),
            metrics=curves[leaf][place] | {"trees": trees, "least_in_leaf": leaf},
            curves={f"validation_pinball_leaf_{size}": [s["pinball"] for s in curves[size]] for size in curves},
            weight=np.asarray(forest.feature_importances_),
            packages=("scikit-learn",),
        )
        return write_artifact(out, learnt, both)

    def _curve(self, table: Table, validation: Table, leaf: int, seed: int) -> list[dict[str, float]]:
        """Scores on the validation set after each group of trees."""
        forest = self._grown(table, leaf, seed, self._settings.trees)
        masses = leaf_masses(forest, _features(table), _wait(table))
        places = forest.apply(_features(validation))
        answers, scores = WaitDistribution(HOURS), []
        total = np.zeros((len(places), len(HOURS)))
        for number, mass in enumerate(masses, start=1):
            total += mass[places[:, number - 1]]
            if number % self._settings.step == 0 or number == len(masses):
                hours = answers.quantiles(np.cumsum(total / number, axis=1))
                shaped = hours.reshape(*validation.submit.shape, -1)
                scores.append(forecast_scores(validation, shaped, answers.levels, Weights()))
        return scores

    def _grown(self, table: Table, leaf: int, seed: int, trees: int) -> Any:
        settings, features = self._settings, _features(table)
        forest = RandomForestRegressor(
            n_estimators=trees,
            min_samples_leaf=leaf,
            max_features=settings.columns,
            max_samples=min(settings.rows, len(features)),
            n_jobs=-1,
            random_state=seed,
        )
        return forest.fit(features, np.log1p(_wait(table)))


def leaf_masses(forest: Any, features: Float32, wait: Float64) -> list[Float32]:
    """For each tree, shape (nodes, len(HOURS)): share of a node's rows that wait at most each number of hours.

    A share counts where the wait first fits; running sums over a row make a distribution.
    """
    fits = np.minimum(np.searchsorted(HOURS, wait), len(HOURS) - 1)
    masses = []
    for tree, places in zip(forest.estimators_, forest.apply(features).T, strict=True):
        nodes = tree.tree_.node_count
        counts = np.bincount(places * len(HOURS) + fits, minlength=nodes * len(HOURS)).reshape(nodes, -1)
        masses.append((counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)).astype(np.float32))
    return masses


def forest_graph(forest: Any, masses: list[Float32]) -> bytes:
    """The mean of the trees' distributions as ONNX."""
    share = np.float32(1 / len(masses))
    trees = [_tree(grown.tree_, mass * share) for grown, mass in zip(forest.estimators_, masses, strict=True)]
    base = np.zeros(masses[0].shape[1], dtype=np.float32)
    return trees_graph(trees, forest.n_features_in_, base, compare="<=", then="cumsum")


def _tree(tree: Any, value: Float32) -> Tree:
    """One of scikit-learn's trees: features are float32, thresholds float64."""
    leaf = tree.children_left < 0
    return Tree(
        feature=np.where(leaf, -1, tree.feature).astype(np.int64),
        threshold=floor32(tree.threshold),
        left=tree.children_left.astype(np.int64),
        right=tree.children_right.astype(np.int64),
        value=value,
    )


def _features(table: Table) -> Float32:
    return table.features.reshape(-1, table.features.shape[-1])


def _wait(table: Table) -> Float64:
    return np.asarray(table.wait.ravel() / HOUR)

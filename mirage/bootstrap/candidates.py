"""Candidates of the predictor ``auto``: look-ahead, and the models in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.bootstrap.compiling_apart import prepare_cache
from mirage.domain.errors import MirageError
from mirage.predictors.artifacts.shelf import Shelf
from mirage.predictors.auto import Auto, Candidates
from mirage.predictors.naming import LOOKAHEAD
from mirage.predictors.registry import build_predictor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirage.domain.objective import Weights
    from mirage.ports import Predictor
    from mirage.simulator.cluster import ClusterConfig

_BEST_FIRST = ("random-forest", "xgboost", "policy-gradient", "dqn")
"""By their cost on months that none of them had seen (docs/benchmarks/predictors.md); others follow by name."""


def best_at_hand(
    models: Path,
    describe: Callable[[], ClusterConfig] | None,
    build: Callable[[str], Predictor],
    weights: Weights,
) -> Auto:
    """``models``: the model registry. ``describe``: raises ``MirageError``; ``None``: nothing is looked for."""
    usual = build_predictor("quantile")
    if describe is None:
        return Auto(Candidates(), usual, weights)
    first = Candidates(missing="no other predictor has been checked yet")
    return Auto(first, usual, weights, lambda: _found(models, describe, build))


def _found(models: Path, describe: Callable[[], ClusterConfig], build: Callable[[str], Predictor]) -> Candidates:
    """The predictors that can be built now, and why the others cannot be."""
    lost: dict[str, str] = {}
    try:
        if describe().priority.shares_outweigh_age:
            return Candidates.none_helps()
    except MirageError as error:
        lost[LOOKAHEAD] = str(error)
    if LOOKAHEAD not in lost:
        prepare_cache()
    found = []
    for name in (LOOKAHEAD, *_in_use(models)):
        try:
            if name not in lost:
                found.append(build(name))
        except MirageError as error:
            lost[name] = str(error)
    return Candidates(tuple(found), "; ".join(f"no {name}: {why}" for name, why in lost.items()))


def _in_use(models: Path) -> list[str]:
    """Names of the models in use, the best first."""
    merits = {name: place for place, name in enumerate(_BEST_FIRST)}
    return sorted(Shelf(models).in_use(), key=lambda name: (merits.get(name, len(merits)), name))

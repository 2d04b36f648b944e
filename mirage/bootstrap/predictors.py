"""Predictors by name: look-ahead, models of the model registry, and the candidates of ``auto``.

Only the configuration names models by path.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.compiling_apart import prepare_cache
from mirage.domain.errors import ArtifactMismatch, ClusterUnavailable, ConfigError, MirageError
from mirage.domain.objective import Weights
from mirage.predictors.auto import Auto, Candidates, auto_of
from mirage.predictors.baselines import Reactive
from mirage.predictors.ensemble import ensemble_of, vote_of
from mirage.predictors.members import AUTO, COMBINED, ENSEMBLE, LOOKAHEAD, SHOWN, VOTE, check_name, members_of
from mirage.predictors.model_registry import ModelRegistry
from mirage.predictors.registry import build_predictor, is_built_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.bootstrap.cluster import ClusterInfo
    from mirage.config.model import Config
    from mirage.ports import Predictor
    from mirage.predictors.model_manifest import ClusterMark
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
    return sorted(ModelRegistry(models).in_use(), key=lambda name: (merits.get(name, len(merits)), name))


_LOG = logging.getLogger(__name__)

MODELS = "models"
"""Directory of the trained models, in the state directory."""

_PLUGIN, _VERSION = re.compile(r"[a-z0-9_-]{1,40}"), re.compile(r"[0-9a-f]{12}")
"""Directories of the model registry."""


def named_predictor(text: str, config: Config, lore: ClusterInfo | None) -> Predictor:
    """The predictor that ``text`` names, such as ``fixed:6h``, ``lookahead``, ``xgboost`` or ``xgboost:FOLDER``.

    A trained model without a directory is the one in use in the state directory's ``models``; what follows the
    colon may
    also be a version there. Without ``lore`` the cluster is not asked, and for look-ahead only what the
    configuration itself says is looked at. Raises ``PluginNotFound`` and ``ConfigError``, the latter also for a
    model of another cluster.
    """

    def lookahead(parameter: str) -> Predictor:
        if parameter:
            raise ValueError("takes no parameter")
        cluster = _cluster(config, lore)
        return _lookahead(cluster, config) if cluster is not None else Reactive()

    def member(name: str) -> Predictor:
        return named_predictor(name, config, lore)

    def ensemble(parameter: str) -> Predictor:
        return ensemble_of(parameter, member)

    def vote(parameter: str) -> Predictor:
        return vote_of(parameter, member, weights_of(config))

    def auto(parameter: str) -> Predictor:
        return auto_of(parameter, member, weights_of(config)) if parameter else _best_at_hand(config, lore, member)

    named = shelved(text, Path(config.service.state) / MODELS)
    _try_model(named)
    predictor = build_predictor(named, {LOOKAHEAD: lookahead, ENSEMBLE: ensemble, VOTE: vote, AUTO: auto})
    _check_at_home(predictor, config, lore)
    return predictor


def chosen_predictor(text: str, config: Config, lore: ClusterInfo | None) -> Predictor:
    """The predictor that a user of the daemon names: built in, or a model of the model registry.

    Raises as ``named_predictor`` does, and for what would be a path.
    """
    check_chosen(text, Path(config.service.state) / MODELS)
    return named_predictor(text, config, lore)


def check_chosen(text: str, models: Path) -> None:
    """Raise ``PluginNotFound`` and ``ConfigError`` for a name that a user of the daemon must not give.

    A plugin takes its parameter for a path, so a parameter has to be a version of the model registry.
    """
    check_name(text)
    name, _, parameter = text.partition(":")
    if name in COMBINED:
        try:
            members = members_of(name, parameter)
        except ValueError as error:
            raise ConfigError(f"predictor {text!r}", str(error)) from None
        for member in members:
            check_chosen(member, models)
    elif parameter and name != LOOKAHEAD and not is_built_in(name) and shelved(text, models) == text:
        problem = f"the model registry has no such version; `mirage models list` shows those of {name}"
        raise ConfigError(f"predictor {text!r}", problem)


def shelved(text: str, models: Path) -> str:
    """The same name with the directory of its model, where the model registry has it."""
    name, _, parameter = (part.strip() for part in text.strip().partition(":"))
    if not _PLUGIN.fullmatch(name):
        return text
    shelf = models / name
    try:
        if not parameter:
            return f"{name}:{shelf}" if (shelf / "current").is_file() else text
        kept = _VERSION.fullmatch(parameter) and (shelf / parameter).is_dir()
    except OSError as error:
        if is_built_in(name):
            return text
        raise ConfigError(
            str(shelf), f"cannot be read: {error.strerror}; the daemon's account must own it"
        ) from error
    return f"{name}:{shelf / parameter}" if kept else text


def _try_model(named: str) -> None:
    """Raise ``ConfigError`` for a model that does not run within bounds; what is no model is for others to say."""
    from mirage.predictors.model_registry import promoted
    from mirage.predictors.model_trial import try_model

    name, _, parameter = named.partition(":")
    folder = Path(parameter).expanduser()
    if not parameter or name in (LOOKAHEAD, *COMBINED) or not folder.is_dir():
        return
    try:
        try_model(promoted(folder))
    except ArtifactMismatch as error:
        raise ConfigError(f"predictor {named[:SHOWN]!r}", str(error)) from error


def _cluster(config: Config, lore: ClusterInfo | None) -> ClusterConfig | None:
    named = config.predictors.lookahead.cluster
    if named:
        from mirage.simulator.configuration.clusterfile import load_cluster

        return load_cluster(named)
    if lore is None:
        return None
    if lore.description is None:
        problem = f"the backend {config.cluster.backend} cannot describe the cluster; set the cluster's file"
        raise ConfigError("predictors.lookahead.cluster", problem)
    return lore.description()


def _best_at_hand(config: Config, lore: ClusterInfo | None, build: Callable[[str], Predictor]) -> Predictor:
    def describe() -> ClusterConfig:
        cluster = _cluster(config, lore)
        assert cluster is not None
        return cluster

    models = Path(config.service.state) / MODELS
    return best_at_hand(models, describe if lore is not None else None, build, weights_of(config))


def _check_at_home(predictor: Predictor, config: Config, lore: ClusterInfo | None) -> None:
    """Raise ``ConfigError`` for a model of another cluster; log if the cluster cannot be determined."""
    from mirage.predictors.onnx_predictor import ArtifactPredictor

    if not isinstance(predictor, ArtifactPredictor):
        return
    try:
        cluster = _cluster(config, lore)
        remark = _remark(predictor.manifest.cluster, cluster) if cluster is not None else ""
    except ArtifactMismatch as error:
        raise ConfigError(f"predictor {predictor.name!r}", error.problem) from error
    except (ConfigError, ClusterUnavailable) as error:
        if config.predictors.lookahead.cluster:
            raise
        remark = f"cannot check whether it was trained on this cluster: {error}"
    if remark:
        _LOG.warning("event=model_origin predictor=%s text=%r", predictor.name, remark)


def _remark(trained: ClusterMark, cluster: ClusterConfig) -> str:
    from mirage.predictors.model_manifest import check_home
    from mirage.training.chunks import cluster_fingerprint

    return check_home(trained, cluster.name, cluster_fingerprint(cluster))


def _lookahead(cluster: ClusterConfig, config: Config) -> Predictor:
    from mirage.predictors.lookahead import Lookahead

    return Lookahead(cluster, weights=weights_of(config))


def weights_of(config: Config) -> Weights:
    """Prices of a second of interruption and of overlap."""
    return Weights(config.loop.interruption_price, config.loop.overlap_price)

"""Parts that a reload may change: predictors, limits and the pace of the polls."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.predictors import MODELS, chosen_predictor, named_predictor
from mirage.control.clocks import Pacing
from mirage.control.dependencies import LoopSettings
from mirage.control.guard import Guards, PredictorGuard, PredictorThreads, Took, unheard
from mirage.control.named_predictors import NamedGuards
from mirage.control.startplans import PlanBudget
from mirage.domain.errors import ArtifactMismatch, ClusterUnavailable, ConfigError, PluginNotFound
from mirage.domain.objective import Weights
from mirage.predictors.model_registry import ModelRegistry
from mirage.predictors.registry import build_predictor
from mirage.provisioner.decide import DecisionRule
from mirage.provisioner.limits import Limits, Quotas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.bootstrap.cluster import ClusterInfo
    from mirage.config.model import Config

_LOG = logging.getLogger(__name__)

_APPRAISED = 900
"""Seconds after a predecessor's end in which it is predicted what the handover saved; at least two polls."""
_QUEUE_AGE = 900
"""Seconds between two reads of the whole queue while no forecast decides about a chain of the daemon's user."""
_CALM_INTERVALS, _LONGEST_CALM = 5, 600
"""Intervals between two polls then, and seconds at most: a link that fails is noticed within this time."""
_CLOCK_SLACK = 60
"""Real seconds by which this machine's clock and Slurm's may differ without a word."""


def build_policy(config: Config, rate: float) -> LoopSettings:
    """The rule of decision and the limits, for a Slurm whose clock runs ``rate`` times as fast.

    ``settle`` is about how long answers are in progress, which no clock of Slurm's makes faster. Decisions take
    half
    of the interval at most.
    """
    loop = config.loop
    prices = Weights(loop.interruption_price, loop.overlap_price)
    level = loop.level if loop.level is not None else prices.critical_level
    rule = DecisionRule(level, loop.margin, loop.early_price / (prices.interruption + prices.overlap or 2.0))
    values = config.limits.model_dump()
    limits = Limits(**{field.name: values[field.name] for field in fields(Limits)})
    decision_seconds = loop.interval / rate / 2  # the other half is for reading, storing and commands
    settle, slack = round(loop.settle * rate), round(_CLOCK_SLACK * rate)
    appraise = max(_APPRAISED, 2 * round(max(loop.interval, loop.longest_interval)))
    plans = PlanBudget()
    queue_age = _QUEUE_AGE if config.acting.mode == "own" else 0
    return LoopSettings(
        rule,
        limits,
        quotas_of(config),
        settle,
        decision_seconds,
        plans,
        slack,
        between_polls=True,
        queue_age=queue_age,
        appraise=appraise,
    )


def quotas_of(config: Config) -> Quotas:
    """The quotas of the configuration."""
    values = config.limits.model_dump()
    return Quotas(**{field.name: values[field.name] for field in fields(Quotas)})


def build_pacing(config: Config) -> Pacing:
    """Intervals at which the cluster is polled."""
    loop = config.loop
    calm = 0
    if config.acting.mode == "own":
        calm = max(loop.interval, min(_CALM_INTERVALS * loop.interval, loop.longest_interval, _LONGEST_CALM))
    return Pacing(loop.interval, loop.jitter, loop.longest_interval, loop.slow_answer, calm)


def build_guards(
    config: Config,
    lore: ClusterInfo | None = None,
    took: Took = unheard,
    threads: PredictorThreads | None = None,
    in_shadow: Sequence[str] = (),
) -> Guards:
    """The daemon's predictor, those in shadow, and those that chains name.

    Without ``lore`` the cluster is not asked about itself: enough to check a configuration. Raises ``ConfigError``
    that names the key. ``took`` receives the duration of each prediction; ``threads`` are those of the guards
    before; ``in_shadow``: see ``models_in_shadow``.
    """
    budget, reactive = config.loop.budget, build_predictor("reactive")
    threads = threads or PredictorThreads()

    def alone(name: str) -> PredictorGuard:
        return PredictorGuard(named_predictor(name, config, lore), reactive, budget, took, threads.configured)

    fallback = _keyed("loop.fallback", config.loop.fallback, alone)

    def guard(name: str) -> PredictorGuard:
        predictor = named_predictor(name, config, lore)
        instead = reactive if predictor.name == fallback.predictor.name else fallback
        return PredictorGuard(predictor, instead, budget, took, threads.configured)

    wanted = [("loop.predictor", config.loop.predictor), *(("loop.shadows", name) for name in config.loop.shadows)]
    built: list[PredictorGuard] = []
    try:
        for key, name in wanted:
            built.append(_keyed(key, name, guard))
    except ConfigError:
        for one in (*built, fallback):
            one.close()
        raise
    built += _watched(config, in_shadow, guard)
    named = NamedGuards(lambda name: chosen_predictor(name, config, lore), fallback, budget, took, threads)
    return Guards(built[0], named, tuple(built[1:]))


def _watched(
    config: Config, in_shadow: Sequence[str], guard: Callable[[str], PredictorGuard]
) -> list[PredictorGuard]:
    """Guards of the models in shadow; one that cannot be loaded is left out."""
    found = []
    for name in in_shadow:
        if name in (config.loop.predictor, *config.loop.shadows):
            continue
        try:
            found.append(guard(name))
        except (ConfigError, PluginNotFound, ClusterUnavailable) as error:
            _LOG.warning("event=model_not_watched predictor=%s error=%r", name, str(error))
    return found


def models_in_shadow(config: Config) -> tuple[str, ...]:
    """The names of the models that the daemon itself has put in shadow. Reads files: not for the loop's thread."""
    try:
        watched = ModelRegistry(Path(config.service.state) / MODELS).watched()
    except ArtifactMismatch as error:
        _LOG.warning("event=model_not_watched error=%r", str(error))
        return ()
    return tuple(f"{name}:{directory.name}" for name, directory in watched.items())


def _keyed(key: str, name: str, guard: Callable[[str], PredictorGuard]) -> PredictorGuard:
    try:
        return guard(name)
    except (ConfigError, PluginNotFound, ClusterUnavailable) as error:
        raise ConfigError(key, str(error)) from error

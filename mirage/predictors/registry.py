"""Predictors by name: ``name`` or ``name:parameter``, built in or installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mirage.domain.errors import ConfigError, MirageError, PluginNotFound
from mirage.predictors.average import AverageWait
from mirage.predictors.fixed import FixedLead
from mirage.predictors.quantile import DEFAULT_LEVEL, QuantileOfClass
from mirage.predictors.reactive import Reactive
from mirage.predictors.slurmplan import SlurmPlan
from mirage.slurm import duration

if TYPE_CHECKING:
    from mirage.ports import Predictor

GROUP = "mirage.predictors"
"""Entry-point group in which packages offer factories of their own."""

Factory = Callable[[str], "Predictor"]
"""Builds a predictor from its parameter's text ("" when none was given); ``ValueError`` for a bad one."""

NONE: Mapping[str, Factory] = {}


def build_predictor(text: str, extra: Mapping[str, Factory] = NONE) -> Predictor:
    """The predictor that ``text`` names, such as ``fixed:6h``.

    ``extra`` offers further names for this call. Raises ``PluginNotFound`` for an unknown name and
    ``ConfigError`` for a parameter that the predictor does not take.
    """
    name, _, parameter = text.strip().partition(":")
    factory = extra.get(name) or _BUILT_IN.get(name) or _installed(name)
    if factory is None:
        offered = ", ".join(sorted({*predictor_names(), *extra}))
        raise PluginNotFound(f"no predictor {name!r} is installed; there are: {offered}")
    try:
        return factory(parameter.strip())
    except (ValueError, MirageError) as error:
        raise ConfigError(f"predictor {text!r}", str(error)) from error


def predictor_names() -> tuple[str, ...]:
    """Names of all predictors, built in first."""
    from importlib.metadata import entry_points

    installed = (point.name for point in entry_points(group=GROUP))
    return (*_BUILT_IN, *(name for name in installed if name not in _BUILT_IN))


def _installed(name: str) -> Factory | None:
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        factory: Factory = point.load()
        return factory
    return None


def _reactive(parameter: str) -> Predictor:
    _takes_none(parameter)
    return Reactive()


def _fixed(parameter: str) -> Predictor:
    if not parameter:
        raise ValueError("needs a lead, such as fixed:6h")
    return FixedLead(duration.parse_human(parameter), f"fixed:{parameter}")


def _average(parameter: str) -> Predictor:
    count = int(parameter) if parameter else 100
    if count < 1:
        raise ValueError(f"needs a number of jobs from 1, not {count}")
    return AverageWait(count, f"average:{parameter}" if parameter else "average")


def _quantile(parameter: str) -> Predictor:
    level = float(parameter) if parameter else DEFAULT_LEVEL
    return QuantileOfClass(level, f"quantile:{parameter}" if parameter else "quantile")


def _slurm(parameter: str) -> Predictor:
    _takes_none(parameter)
    return SlurmPlan()


def _takes_none(parameter: str) -> None:
    if parameter:
        raise ValueError("takes no parameter")


_BUILT_IN: dict[str, Factory] = {
    "reactive": _reactive,
    "fixed": _fixed,
    "average": _average,
    "quantile": _quantile,
    "slurm": _slurm,
}

"""Predictors by name: ``name`` or ``name:parameter``, built in or installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import ConfigError, MirageError, PluginNotFound
from mirage.domain.objective import Weights
from mirage.predictors.auto import auto_of
from mirage.predictors.baselines import AverageWait, FixedLead, QuantileOfClass, Reactive
from mirage.predictors.ensemble import ensemble_of, vote_of
from mirage.predictors.members import AUTO, COMBINED, ENSEMBLE, SHOWN, VOTE
from mirage.predictors.slurmplan import SlurmPlan
from mirage.slurm import duration

if TYPE_CHECKING:
    from mirage.ports import Predictor

GROUP = "mirage.predictors"
"""Entry-point group in which packages register predictor factories."""

TRAINERS = "mirage.trainers"
"""Entry-point group in which packages offer trainers (``mirage.plugin.Trainer``) of their predictors."""

Factory = Callable[[str], "Predictor"]
"""Builds a predictor from its parameter's text ("" when none was given); ``ValueError`` for a bad one."""

NONE: Mapping[str, Factory] = {}
EQUAL = Weights()
"""Interruption and overlap have the same price."""

_LONGEST = 4_096
"""Most characters of a name with parameter, such as the path of a model."""
_LONGEST_LEAD = 366 * 86_400
_MOST_WAITS = 10_000
"""Most past jobs that may be read per decision."""
_COUNT = re.compile(r"[0-9]{1,6}")


def build_predictor(text: str, extra: Mapping[str, Factory] = NONE, weights: Weights = EQUAL) -> Predictor:
    """Build the predictor named ``text``, such as ``fixed:6h``.

    ``extra`` offers further names for this call; ``weights``: by which votes are cast. Raises ``PluginNotFound``
    for an unknown name and ``ConfigError`` for a parameter that the predictor does not take.
    """
    if len(text) > _LONGEST or not text.isprintable():
        raise PluginNotFound(f"predictor {text[:SHOWN]!r}: expected at most {_LONGEST} printable characters")
    name, _, parameter = text.strip().partition(":")

    def built(member: str) -> Predictor:
        return build_predictor(member, extra)

    combined: dict[str, Factory] = {
        ENSEMBLE: lambda members: ensemble_of(members, built),
        VOTE: lambda members: vote_of(members, built, weights),
        AUTO: lambda members: auto_of(members, built, weights),
    }
    factory = extra.get(name) or (_BUILT_IN | combined).get(name) or _installed(name)
    if factory is None:
        offered = ", ".join(sorted({*predictor_names(), *extra}))
        raise PluginNotFound(f"no predictor {name[:SHOWN]!r} is installed; there are: {offered}")
    try:
        return factory(parameter.strip())
    except (ValueError, MirageError) as error:
        raise ConfigError(f"predictor {text[:SHOWN]!r}", str(error)) from error


def is_built_in(name: str) -> bool:
    """Return whether a predictor is part of Mirage and reads no file."""
    return name in _BUILT_IN


def predictor_names() -> tuple[str, ...]:
    """Return the names of all predictors, built-in ones first."""
    from importlib.metadata import entry_points

    installed = (point.name for point in entry_points(group=GROUP))
    built_in = (*_BUILT_IN, *COMBINED)
    return (*built_in, *(name for name in installed if name not in built_in))


def check_trainer(name: str) -> None:
    """Raise ``PluginNotFound`` if no trainer is installed for this predictor; none is loaded."""
    from importlib.metadata import entry_points

    installed = sorted(point.name for point in entry_points(group=TRAINERS))
    if name not in installed:
        offered = ", ".join(installed) or "none"
        raise PluginNotFound(f"no trainer of {name[:SHOWN]!r} is installed; those installed: {offered}")


def build_trainer(name: str) -> Any:
    """Return the ``mirage.plugin.Trainer`` of a predictor. Raises ``PluginNotFound`` with the available ones."""
    from importlib.metadata import entry_points

    build = _loaded(TRAINERS, name)
    if build is None:
        offered = ", ".join(sorted({point.name for point in entry_points(group=TRAINERS)})) or "none"
        known = "needs no training" if name in (*_BUILT_IN, *COMBINED) else "is not installed"
        raise PluginNotFound(f"predictor {name!r} {known}; those that can be trained: {offered}")
    return build()


def _installed(name: str) -> Factory | None:
    factory: Factory | None = _loaded(GROUP, name)
    return factory


def _loaded(group: str, name: str) -> Any:
    """Load the entry point with that name; ``None`` if missing. Raises ``PluginNotFound`` if broken."""
    from importlib.metadata import entry_points

    for point in entry_points(group=group, name=name):
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise PluginNotFound(f"{name!r} is installed but cannot be loaded ({point.value}): {error}") from error
    return None


def _reactive(parameter: str) -> Predictor:
    _takes_none(parameter)
    return Reactive()


def _fixed(parameter: str) -> Predictor:
    if not parameter:
        raise ValueError("needs a lead, such as fixed:6h")
    lead = duration.parse_human(parameter)
    if not 0 <= lead <= _LONGEST_LEAD:
        raise ValueError("expected a lead of at most 366 days")
    return FixedLead(lead, f"fixed:{parameter}")


def _average(parameter: str) -> Predictor:
    if parameter and not _COUNT.fullmatch(parameter):
        raise ValueError(f"expected a number of jobs from 1 to {_MOST_WAITS:,}")
    count = int(parameter) if parameter else 100
    if not 1 <= count <= _MOST_WAITS:
        raise ValueError(f"expected a number of jobs from 1 to {_MOST_WAITS:,}")
    return AverageWait(count, f"average:{parameter}" if parameter else "average")


def _quantile(parameter: str) -> Predictor:
    level = float(parameter) if parameter else None
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

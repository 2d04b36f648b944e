"""Names of predictors, also of combined ones: ``NAME:PARAMETER``, ``ensemble:A+B``, ``vote:A+B+C``, ``auto``."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, TypeVar

from mirage.domain.errors import PluginNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.domain.decision import Observation, Prediction
    from mirage.ports import Predictor

PLUGIN = r"[a-z0-9_-]{1,40}"
PATTERN = PLUGIN + r"(:[A-Za-z0-9][A-Za-z0-9_.:+%-]{0,120})?"
"""At most 162 characters, and no ``/``: models are named by their versions in the model registry."""

LOOKAHEAD = "lookahead"
"""The look-ahead predictor, which simulates possible futures of the cluster."""

SHOWN = 80
"""Characters of a name that an error quotes."""

_NAME = re.compile(PATTERN)


def check_name(text: str) -> None:
    """Raise ``PluginNotFound`` if ``text`` is not a valid predictor name."""
    if not _NAME.fullmatch(text):
        expected = "expected a name such as quantile, fixed:6h, xgboost or xgboost:VERSION, without a path"
        raise PluginNotFound(f"predictor {text[:SHOWN]!r}: {expected}; `mirage plugins` lists the predictors")


_LOG = logging.getLogger(__name__)

ENSEMBLE = "ensemble"
"""Averages its members' forecasts."""
VOTE = "vote"
"""Follows the majority of its members."""
AUTO = "auto"
"""The best of the available predictors, or of those listed, best first."""
COMBINED = (ENSEMBLE, VOTE, AUTO)

_MOST_MEMBERS = 8


def members_of(kind: str, parameter: str) -> tuple[str, ...]:
    """Return the member names of an ensemble, a vote or ``auto``; only ``auto`` may have fewer than two.

    Raises ``ValueError`` for too few or too many, one named twice, and nesting.
    """
    if kind == AUTO and not parameter:
        return ()
    names = tuple(name.strip() for name in parameter.split("+"))
    if len(names) > _MOST_MEMBERS:
        raise ValueError(f"has {len(names)} members; expected at most {_MOST_MEMBERS}")
    if not all(names) or (len(names) < 2 and kind != AUTO):
        raise ValueError(f"needs two members or more, such as {kind}:lookahead+quantile")
    if len(set(names)) < len(names):
        raise ValueError("names a member twice")
    if any(is_combined(name) for name in names):
        raise ValueError(f"one of {', '.join(COMBINED)} cannot be a member of another")
    return names


def is_combined(name: str) -> bool:
    """Return whether this name, with or without parameter, is a combined predictor."""
    return name.partition(":")[0] in COMBINED


T = TypeVar("T")


class Members:
    """Members of a combined predictor; a failing one is left out and logged once."""

    def __init__(self, members: Sequence[Predictor], name: str) -> None:
        """``name``: of the combined predictor."""
        self.all = tuple(members)
        self._name = name
        self._left_out: dict[str, str] = {}

    def ask(self, observation: Observation, read: Callable[[Prediction], T]) -> list[T | None]:
        """Return ``read`` of each member's prediction; ``None`` if the member or ``read`` raises.

        Raises ``ValueError`` that says why where that is so of all.
        """
        answers = [self._ask(member, observation, read) for member in self.all]
        if all(answer is None for answer in answers):
            raise ValueError("; ".join(f"{name}: {why}" for name, why in self._left_out.items()))
        return answers

    def _ask(self, member: Predictor, observation: Observation, read: Callable[[Prediction], T]) -> T | None:
        try:
            answer = read(member.predict(observation))
        except Exception as error:  # in any case the other members are used
            why = str(error) or type(error).__name__
            if member.name not in self._left_out:
                _LOG.warning("%s answers without %s: %s", self._name, member.name, why)
            self._left_out[member.name] = why
            return None
        self._left_out.pop(member.name, None)
        return answer

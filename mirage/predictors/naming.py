"""Predictor names from users: ``NAME`` or ``NAME:PARAMETER``, never a path."""

from __future__ import annotations

import re

from mirage.domain.errors import PluginNotFound

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

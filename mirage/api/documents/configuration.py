"""The daemon's configuration, for administrators."""

from __future__ import annotations

from typing import Any

from mirage.api.conventions.described import Described


class SettingDocument(Described):
    """One key."""

    key: str
    """Such as ``loop.interval``."""
    value: Any
    """Durations are seconds; passwords within addresses are hidden."""
    source: str
    """File and line, variable, or ``default``."""


class ConfigurationDocument(Described):
    """Every key, in the order of the reference."""

    settings: list[SettingDocument]
    """Every key."""

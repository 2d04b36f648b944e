"""The daemon's configuration, for administrators."""

from __future__ import annotations

from typing import Any

from mirage.api.conventions.described import Described


class SettingDocument(Described):
    """A configuration key with its value and source."""

    key: str
    """Key, such as ``loop.interval``."""
    value: Any
    """Value; durations are seconds, passwords in URLs are hidden."""
    source: str
    """File and line, environment variable, or ``default``."""


class ConfigurationDocument(Described):
    """All configuration keys, in the order of the reference."""

    settings: list[SettingDocument]
    """All keys."""

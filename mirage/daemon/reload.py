"""Which keys of a new configuration apply immediately, and which after a restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.config.display import settings

if TYPE_CHECKING:
    from mirage.config.model import Config

AT_ONCE = ("loop", "predictors", "limits", "log")
"""Sections that the running daemon takes over; so are the retention times of the database."""
_KEPT_AGES = ("store", "retention")


@dataclass(frozen=True, slots=True)
class Reload:
    """A new configuration as the running daemon can have it."""

    config: Config
    """The old configuration with all immediately applicable values of the new one."""
    changed: tuple[str, ...]
    """Keys that hold from now on."""
    waiting: tuple[str, ...]
    """Keys that hold after a restart."""


def plan_reload(old: Config, new: Config) -> Reload:
    """The values of ``new`` that apply now, and the keys that wait for a restart."""
    before = dict(settings(old))
    differing = [key for key, value in settings(new) if before[key] != value]
    store = old.store.model_copy(update={"retention": new.store.retention})
    taken = old.model_copy(update={name: getattr(new, name) for name in AT_ONCE} | {"store": store})
    return Reload(
        taken,
        tuple(".".join(key) for key in differing if _at_once(key)),
        tuple(".".join(key) for key in differing if not _at_once(key)),
    )


def _at_once(key: tuple[str, ...]) -> bool:
    return key[0] in AT_ONCE or key[:2] == _KEPT_AGES

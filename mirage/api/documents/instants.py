"""Format of times in API documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.instants import spell_instant

if TYPE_CHECKING:
    from mirage.domain.job import Seconds


def instant(seconds: Seconds) -> str | None:
    """Format epoch seconds as ``2026-11-21T14:36:00Z``; ``None`` for an absent or infinite time."""
    spelt = spell_instant(seconds)
    return spelt if spelt.endswith("Z") else None

"""Times as every document of the API shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.instants import spell_instant

if TYPE_CHECKING:
    from mirage.domain.job import Seconds


def instant(seconds: Seconds) -> str | None:
    """Epoch seconds as ``2026-11-21T14:36:00Z``; ``None`` for what is absent or never."""
    spelt = spell_instant(seconds)
    return spelt if spelt.endswith("Z") else None

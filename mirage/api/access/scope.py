"""What a caller may do."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """What a caller may do; each includes those before it."""

    READ = "read"
    """View own chains, and data that belongs to no user."""
    OPERATE = "operate"
    """Create and control own chains."""
    ADMIN = "admin"
    """View and control all chains, and promote models."""

    def includes(self, other: Scope) -> bool:
        """Whether this scope includes ``other``."""
        return _ORDER[self] >= _ORDER[other]


_ORDER = {scope: place for place, scope in enumerate(Scope)}


def lesser(one: Scope, other: Scope) -> Scope:
    """Return the smaller of two scopes."""
    return min(one, other, key=_ORDER.__getitem__)

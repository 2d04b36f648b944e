"""What a caller may do."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """What a caller may do; each includes those before it."""

    READ = "read"
    """Look at own chains, and at what concerns nobody in particular."""
    OPERATE = "operate"
    """Create own chains and command them."""
    ADMIN = "admin"
    """See and command the chains of all, change what decides."""

    def includes(self, other: Scope) -> bool:
        """Whether who may do this may do the other."""
        return _ORDER[self] >= _ORDER[other]


_ORDER = {scope: place for place, scope in enumerate(Scope)}


def lesser(one: Scope, other: Scope) -> Scope:
    """What both allow."""
    return min(one, other, key=_ORDER.__getitem__)

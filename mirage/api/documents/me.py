"""The caller of a request."""

from __future__ import annotations

from mirage.api.conventions.described import Described


class MeDocument(Described):
    """The caller and its scope."""

    name: str
    """User name."""
    scope: str
    """Scope: ``read``, ``operate`` or ``admin``."""
    how: str
    """Authentication: ``socket``, ``token ID``, ``jwt``, ``session``, or ``nothing``."""

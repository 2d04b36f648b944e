"""Who asks, as the API knows them."""

from __future__ import annotations

from mirage.api.conventions.described import Described


class MeDocument(Described):
    """The caller and what they may do."""

    name: str
    """As the machine knows the user."""
    scope: str
    """``read``, ``operate`` or ``admin``."""
    how: str
    """How they proved who they are: ``socket``, ``token ID``, ``jwt``, ``session``, or ``nothing``."""

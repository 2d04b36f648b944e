"""Who asks, as the interface knows them."""

from __future__ import annotations

from pydantic import BaseModel


class MeDocument(BaseModel):
    """The caller and what they may do."""

    name: str
    scope: str
    """``read``, ``operate`` or ``admin``."""
    how: str
    """How they proved who they are: ``socket``, ``token ID``, ``jwt``, ``session``, or ``nothing``."""

"""``/api/v1/protected-mode``: state and end of protected mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from mirage.api.access.dependencies import Admin, Reader
from mirage.api.documents.protection import (
    ProtectedMode,
    ProtectedModeAnswer,
    ProtectedModeWish,
    protected_mode,
)
from mirage.api.routes.petitioner import Petitioner
from mirage.domain.command import LiftProtection

if TYPE_CHECKING:
    from mirage.api.port import ApiService


def protection_routes(service: ApiService) -> APIRouter:
    """Return the routes about protected mode."""
    routes = APIRouter(prefix="/protected-mode", tags=["protected mode"])
    petitioner = Petitioner(service)

    @routes.get("")
    async def show_protected_mode(caller: Reader) -> ProtectedMode:
        """Report whether protected mode is on, since when, and the time of the next trial submission."""
        del caller
        return protected_mode(service.status())

    @routes.post("")
    async def lift_protected_mode(caller: Admin, wish: ProtectedModeWish) -> ProtectedModeAnswer:
        """End protected mode: all chains may submit again immediately."""
        del wish
        return ProtectedModeAnswer(sentence=await petitioner.tell(LiftProtection(caller.name)))

    return routes

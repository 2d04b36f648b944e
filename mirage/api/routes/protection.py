"""``/api/v1/protected-mode``: whether submissions are held, and their release."""

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
    """The addresses about protected mode."""
    routes = APIRouter(prefix="/protected-mode", tags=["protected mode"])
    petitioner = Petitioner(service)

    @routes.get("")
    async def show_protected_mode(caller: Reader) -> ProtectedMode:
        """Whether it is on, since when, and when the next submission is tried."""
        del caller
        return protected_mode(service.status())

    @routes.post("")
    async def lift_protected_mode(caller: Admin, wish: ProtectedModeWish) -> ProtectedModeAnswer:
        """End it: all chains may try again at once."""
        del wish
        return ProtectedModeAnswer(sentence=await petitioner.tell(LiftProtection(caller.name)))

    return routes

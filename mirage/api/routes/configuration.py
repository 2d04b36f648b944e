"""``/api/v1/configuration``: what holds, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from mirage.api.access.dependencies import Admin
from mirage.api.conventions.threads import ThreadRoute
from mirage.api.documents.configuration import ConfigurationDocument, SettingDocument

if TYPE_CHECKING:
    from mirage.api.port import ApiService


def configuration_routes(service: ApiService) -> APIRouter:
    """The address of the configuration."""
    routes = APIRouter(route_class=ThreadRoute, tags=["configuration"])

    @routes.get("/configuration", summary="The configuration that holds")
    def show_configuration(caller: Admin) -> ConfigurationDocument:
        """Every key with its value and where that comes from. Secrets are in files, which are never shown."""
        del caller
        found = service.configuration()
        return ConfigurationDocument(
            settings=[SettingDocument(key=each.key, value=each.value, source=each.source) for each in found]
        )

    return routes

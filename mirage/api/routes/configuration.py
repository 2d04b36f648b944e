"""``/api/v1/configuration``: values in force, and their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from mirage.api.access.dependencies import Admin
from mirage.api.conventions.threads import ThreadRoute
from mirage.api.documents.configuration import ConfigurationDocument, SettingDocument

if TYPE_CHECKING:
    from mirage.api.port import ApiService


def configuration_routes(service: ApiService) -> APIRouter:
    """Return the route of the configuration."""
    routes = APIRouter(route_class=ThreadRoute, tags=["configuration"])

    @routes.get("/configuration", summary="Configuration in force")
    def show_configuration(caller: Admin) -> ConfigurationDocument:
        """List all keys with value and source. Secrets are in files, which are never shown."""
        del caller
        found = service.configuration()
        return ConfigurationDocument(
            settings=[SettingDocument(key=each.key, value=each.value, source=each.source) for each in found]
        )

    return routes

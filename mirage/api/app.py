"""The application: small pieces put together, nothing of the daemon but the port."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI

from mirage import __version__
from mirage.api.conventions.problems import install_problems
from mirage.api.routes.agents import agent_routes
from mirage.api.routes.chains import chain_routes
from mirage.api.routes.events import event_routes
from mirage.api.routes.login import login_routes
from mirage.api.routes.protection import protection_routes
from mirage.api.routes.timeline import timeline_routes
from mirage.api.routes.tokens import token_routes

if TYPE_CHECKING:
    from mirage.api.port import ApiService


def create_app(service: ApiService) -> FastAPI:
    """The interface to one daemon."""
    service = replace(service, gate=replace(service.gate, admins=service.gate.admins | service.admins))
    app = FastAPI(title="Mirage", version=__version__, docs_url=None, redoc_url=None)
    app.state.service = service
    install_problems(app)
    routes = APIRouter(prefix="/api/v1")
    routes.include_router(chain_routes(service))
    routes.include_router(timeline_routes(service))
    routes.include_router(event_routes(service))
    routes.include_router(protection_routes(service))
    routes.include_router(agent_routes(service))
    routes.include_router(token_routes(service))
    app.include_router(routes)
    app.include_router(_about(service))
    app.include_router(login_routes(service))
    return app


def _about(service: ApiService) -> APIRouter:
    routes = APIRouter(tags=["about"])

    @routes.get("/healthz")
    def health() -> dict[str, object]:
        """That the process answers, and what its last cycle did."""
        status = service.status()
        return {"status": "ok", "cycles": status.cycles, "sentence": status.sentence}

    @routes.get("/version")
    def version() -> dict[str, str]:
        """Which Mirage this is."""
        return {"version": __version__}

    return routes

"""The API application, which uses the daemon only through ``ApiService``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI

from mirage import __version__
from mirage.api.access.auditing import Auditing, AuditWriter
from mirage.api.conventions.admission import ConcurrencyLayer, PacingLayer, StandingBy
from mirage.api.conventions.bodies import Bounds
from mirage.api.conventions.caching import ReadyAnswers, ReadyLayer
from mirage.api.conventions.documents import DescribedApp
from mirage.api.conventions.idempotency import IdempotencyLayer
from mirage.api.conventions.problems import install_problems
from mirage.api.conventions.requestlog import ErrorMiddleware, RequestLog
from mirage.api.routes.account import login_routes, me_routes, token_routes
from mirage.api.routes.administration import (
    audit_routes,
    configuration_routes,
    notification_routes,
    protection_routes,
)
from mirage.api.routes.agents import agent_routes
from mirage.api.routes.allocation import allocation_routes
from mirage.api.routes.chains import chain_routes
from mirage.api.routes.cluster import cluster_routes
from mirage.api.routes.events import event_routes
from mirage.api.routes.jobs import job_routes
from mirage.api.routes.monitoring import about_routes, metrics_routes
from mirage.api.routes.predictions import prediction_routes
from mirage.api.routes.predictors import predictor_routes
from mirage.api.routes.replays import replay_routes
from mirage.api.routes.timeline import timeline_routes
from mirage.api.web.serving import install_pages

if TYPE_CHECKING:
    from mirage.api.port import ApiService


def create_app(service: ApiService, audit: AuditWriter | None = None) -> FastAPI:
    """Return the API of one daemon. ``audit`` writes to ``service.audit``; the caller closes it."""
    app = DescribedApp("Mirage", __version__)
    app.state.service = service
    install_problems(app)
    ready = ReadyAnswers(service.status)
    _install_conventions(app, service, ready, audit)
    routes = APIRouter(prefix="/api/v1")
    routes.include_router(chain_routes(service, ready))
    routes.include_router(timeline_routes(service))
    routes.include_router(event_routes(service))
    routes.include_router(cluster_routes(service))
    routes.include_router(prediction_routes(service))
    routes.include_router(predictor_routes(service))
    routes.include_router(replay_routes(service))
    routes.include_router(configuration_routes(service))
    routes.include_router(job_routes(service))
    routes.include_router(protection_routes(service))
    routes.include_router(notification_routes(service))
    routes.include_router(agent_routes(service))
    routes.include_router(token_routes(service))
    routes.include_router(audit_routes(service))
    routes.include_router(allocation_routes(service))
    routes.include_router(me_routes())
    app.include_router(routes)
    app.include_router(about_routes(service))
    app.include_router(metrics_routes(service))
    app.include_router(login_routes(service))
    install_pages(app)
    return app


def _install_conventions(
    app: FastAPI, service: ApiService, ready: ReadyAnswers, audit: AuditWriter | None
) -> None:
    """Install the middleware, the innermost layer first."""
    app.add_middleware(ReadyLayer, answers=ready)
    if service.audit is not None:
        app.add_middleware(Auditing, writer=audit or AuditWriter(service.audit), now=service.now)
    if service.answers is not None:
        app.add_middleware(IdempotencyLayer, storage=service.answers)
    app.add_middleware(StandingBy, impediment=service.impediment)
    app.add_middleware(Bounds)
    app.add_middleware(ConcurrencyLayer, gate=service.gate)
    app.add_middleware(PacingLayer)
    app.add_middleware(RequestLog)
    app.add_middleware(ErrorMiddleware, frame_ancestors=service.frame_ancestors)

"""Routes of the web UI and its static files; login, audit log and configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from mirage.api.conventions.problems import refused
from mirage.api.routes.account import MeDocument
from mirage.api.routes.administration import AuditPage, ConfigurationDocument, SettingDocument
from mirage.api.web.chainpage import show_chain
from mirage.api.web.internal_client import InternalClient, Refused
from mirage.api.web.overviewpages import show_allocation, show_over, show_overview, show_queue
from mirage.api.web.predictionpages import show_predict, show_predictors
from mirage.api.web.rendering import STATIC, render
from mirage.api.web.replaypages import show_replay, show_replays

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from os import PathLike, stat_result
    from typing import Any

    from fastapi import FastAPI
    from starlette.types import Scope


async def show_audit(
    request: Request,
    chain: Annotated[str, Query(max_length=100)] = "",
    cursor: Annotated[str | None, Query(max_length=400)] = None,
) -> Response:
    """Show the audit log, newest first."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    found = await ask.get("/audit", AuditPage, chain=chain or None, cursor=cursor)
    return await render(request, "audit.html.j2", me, found=found, chain=chain, first=cursor is None)


async def show_configuration(request: Request) -> Response:
    """Show all keys with value and source, one table per section."""
    ask = InternalClient(request)
    me = await ask.get("/me", MeDocument)
    found = await ask.get("/configuration", ConfigurationDocument)
    sections: dict[str, list[SettingDocument]] = {}
    for each in found.settings:
        sections.setdefault(each.key.rpartition(".")[0], []).append(each)
    return await render(request, "configuration.html.j2", me, sections=sections)


async def show_login(
    request: Request,
    failed: bool = False,
    used: bool = False,
    target: Annotated[str, Query(alias="next", max_length=2_000)] = "/",
) -> Response:
    """Show the login form; ``failed``: after an invalid token; ``used``: after an invalid login link."""
    return await render(request, "login.html.j2", None, failed=failed, used=used, target=target)


_FOR_EVER = "public, max-age=31536000, immutable"


def install_pages(app: FastAPI) -> None:
    """Add the pages and static files to the application."""
    pages = APIRouter(route_class=PageRoute, include_in_schema=False)
    pages.add_api_route("/", show_overview)
    pages.add_api_route("/over", show_over)
    pages.add_api_route("/chains/{chain_id}", show_chain)
    pages.add_api_route("/allocation", show_allocation)
    pages.add_api_route("/queue", show_queue)
    pages.add_api_route("/predict", show_predict)
    pages.add_api_route("/predictors", show_predictors)
    pages.add_api_route("/replays", show_replays)
    pages.add_api_route("/replays/{replay_id}", show_replay)
    pages.add_api_route("/audit", show_audit)
    pages.add_api_route("/configuration", show_configuration)
    pages.add_api_route("/login", show_login)
    app.include_router(pages)
    app.mount("/static", KeptFiles(directory=STATIC), name="static")
    app.add_exception_handler(404, _missing)


class PageRoute(APIRoute):
    """Route of a page; API errors are shown as pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that turns ``Refused`` into an error page."""
        handler = super().get_route_handler()

        async def page(request: Request) -> Response:
            try:
                return await handler(request)
            except Refused as error:
                return await _refusal(request, error)

        return page


class KeptFiles(StaticFiles):
    """Static files whose URL changes with their content."""

    def file_response(
        self, full_path: PathLike[str] | str, stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return the file, with a long cache lifetime."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        if b"v=" in scope["query_string"]:
            response.headers["Cache-Control"] = _FOR_EVER
        return response


async def _missing(request: Request, error: Exception) -> Response:
    """Respond to an unknown path: an error page for a browser, a problem document for other clients."""
    assert isinstance(error, HTTPException)
    answer = await refused(request, error)
    browser = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    if answer.status_code != error.status_code or not browser:
        return answer
    return await _refusal(request, Refused(404, "there is no page at this address"))


async def _refusal(request: Request, error: Refused) -> Response:
    if error.status == 401:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/login?next={quote(request.url.path)}", 303)
    return await render(request, "refusal.html.j2", None, error.status, refused=error)

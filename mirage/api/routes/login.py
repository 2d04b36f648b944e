"""``/login``, ``/enter``, ``/logout``: browsers log in with a token or a link, and get a cookie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request, Response

from mirage.api.access.gate import NotAuthenticated, strange
from mirage.api.access.sessions import COOKIE, SECURE_COOKIE
from mirage.api.conventions.body import read_body
from mirage.api.conventions.threads import run_in_thread
from mirage.domain.errors import NotPermitted

if TYPE_CHECKING:
    from mirage.api.access.gate import Gate
    from mirage.api.access.sessions import Session
    from mirage.api.port import ApiService

_LARGEST = 16 << 10
_PAGE = "text/html"


def login_routes(service: ApiService) -> APIRouter:
    """Return the routes for login and logout; the form itself is a page."""
    routes = APIRouter(tags=["login"])
    gate = service.gate

    @routes.post("/login", status_code=303, response_class=Response, operation_id="log_in")
    async def log_in(request: Request) -> Response:
        """Open a session with a form's ``token``; ``next``: the page to open."""
        if not gate.is_same_origin(request):
            raise NotPermitted(f"the form is not from a page of this server: {strange(request)}")
        form = parse_qs((await read_body(request, _LARGEST)).decode("utf-8", "replace"))
        token, target = form.get("token", [""])[0].strip(), _own_page(form.get("next", ["/"])[0])
        try:
            proof = await gate.attempt(request, token)
        except NotAuthenticated:
            if _PAGE in request.headers.get("accept", ""):
                return _moved(f"/login?failed=1&next={quote(target, safe='')}")
            raise
        return await _welcome(gate, request, proof.session, target, proof.until)

    @routes.get("/enter", status_code=303, response_class=Response, operation_id="enter_by_link")
    async def enter(request: Request, ticket: Annotated[str, Query(max_length=400)] = "") -> Response:
        """Open a session with a single-use link of ``mirage tokens link``."""
        if not gate.is_same_origin(
            request
        ):  # otherwise a page could log people in as another user, by that user's link
            raise NotPermitted(
                "the request comes from a page of another site; copy the link into the browser's address bar"
            )
        session = gate.tickets.redeem(ticket)
        if session is None:
            gate.failed(request)
            if _PAGE in request.headers.get("accept", ""):
                return _moved("/login?used=1")
            raise NotAuthenticated("invalid login link: used before, or older than 10 minutes; create another one")
        return await _welcome(gate, request, session, "/")

    @routes.post("/logout", status_code=303, response_class=Response, operation_id="log_out")
    async def log_out(request: Request) -> Response:
        """End the session for all copies of its cookie."""
        if not gate.is_same_origin(request):
            raise NotPermitted(f"the form is not from a page of this server: {strange(request)}")
        if session := await gate.opened(request):
            gate.sessions.close(session)
        answer = _moved("/login")
        for name, secure in ((COOKIE, False), (SECURE_COOKIE, True)):
            if name in request.cookies:
                answer.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
        return answer

    return routes


async def _welcome(gate: Gate, request: Request, session: Session, target: str, until: float = 0) -> Response:
    cookie = await run_in_thread(session.name, gate.cookie, session, until)
    answer = _moved(target)
    answer.set_cookie(
        gate.cookie_name(request),
        cookie,
        max_age=gate.sessions.lifetime,
        path="/",
        secure=gate.is_secure(request),
        httponly=True,
        samesite="strict",
    )
    return answer


def _moved(target: str) -> Response:
    return Response(status_code=303, headers={"Location": target, "Cache-Control": "no-store"})


def _own_page(target: str) -> str:
    """Allow only paths of this server: a link must not redirect users to another site after login."""
    plain = target.isascii() and target.isprintable() and "\\" not in target
    return target if plain and target.startswith("/") and not target.startswith("//") else "/"

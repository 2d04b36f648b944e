"""``/login``, ``/enter``, ``/logout``: browsers come in with a token or a link, and get a cookie."""

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
    """The addresses by which browsers come and go; the form itself is a page."""
    routes = APIRouter(tags=["login"])
    gate = service.gate

    @routes.post("/login", status_code=303, response_class=Response, operation_id="log_in")
    async def log_in(request: Request) -> Response:
        """A form's ``token`` (and ``next``, the page to go to) becomes a session."""
        if not gate.is_same_origin(request):
            raise NotPermitted(f"the form that was sent is not this server's: {strange(request)}")
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
        """A link of ``mirage tokens link``, used this once, becomes a session."""
        if not gate.is_same_origin(request):  # it would log people in as another user, by that user's link
            raise NotPermitted("a page of another site has led here: copy the link into the browser's address bar")
        session = gate.tickets.redeem(ticket)
        if session is None:
            gate.failed(request)
            if _PAGE in request.headers.get("accept", ""):
                return _moved("/login?used=1")
            raise NotAuthenticated("the link was used before, or is older than ten minutes: ask for another")
        return await _welcome(gate, request, session, "/")

    @routes.post("/logout", status_code=303, response_class=Response, operation_id="log_out")
    async def log_out(request: Request) -> Response:
        """The session ends, in this browser and wherever else its cookie is."""
        if not gate.is_same_origin(request):
            raise NotPermitted(f"the form that was sent is not this server's: {strange(request)}")
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
    """A path of this server: a link must not send people who log in to another."""
    plain = target.isascii() and target.isprintable() and "\\" not in target
    return target if plain and target.startswith("/") and not target.startswith("//") else "/"

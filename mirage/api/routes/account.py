"""A caller's own access: ``/api/v1/me``, ``/api/v1/tokens``, and the login of browsers.

The secret text of a token is shown once, at creation. ``/login``, ``/enter``, ``/logout``: browsers log in with a
token or a link, and get a cookie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from mirage.api.access.auditing import note
from mirage.api.access.authentication import NotAuthenticated, strange
from mirage.api.access.caller import Caller, Scope, lesser
from mirage.api.access.dependencies import Reader, read_body
from mirage.api.access.sessions import COOKIE, SECURE_COOKIE, TICKET_LASTS, Session
from mirage.api.conventions.documents import SHOWN, Described, SentDocument, Word, instant
from mirage.api.conventions.problems import BadDocument
from mirage.api.conventions.threads import QueryRoute, run_in_thread
from mirage.domain.errors import ConfigError, NotPermitted

if TYPE_CHECKING:
    from mirage.api.access.authentication import Authenticator
    from mirage.api.port import ApiService
    from mirage.store.access import StoredToken


class MeDocument(Described):
    """The caller and its scope."""

    name: str
    """User name."""
    scope: str
    """Scope: ``read``, ``operate`` or ``admin``."""
    how: str
    """Authentication: ``socket``, ``token ID``, ``jwt``, ``session``, or ``nothing``."""


_YEAR = 366 * 86_400


class TokenWish(SentDocument):
    """Properties of a new token."""

    label: Annotated[str, Field(max_length=80), SHOWN] = ""
    """Purpose of the token."""
    scope: Scope = Scope.READ
    """Upper bound of its scope."""
    lifetime: Annotated[int, Field(ge=0, le=10 * _YEAR)] = 90 * 86_400
    """Lifetime in seconds; 0: no expiry."""
    owner: Annotated[str, Field(max_length=128), SHOWN] = ""
    """Owner, for administrators; empty: the caller."""


class TokenDocument(Described):
    """A token without its secret text."""

    id: str
    """Token ID, which is not secret."""
    owner: str
    """User that the token authenticates."""
    label: str
    """Purpose of the token."""
    scope: str
    """read, operate or admin; bounded by the scope of the owner."""
    created: str | None
    """Creation time."""
    expires: str | None
    """Expiry; ``null``: never."""
    used: str | None
    """Time of last use, accurate to 5 minutes."""


class NewToken(TokenDocument):
    """A new token with its secret text."""

    token: str
    """Secret text of the token, shown only once."""


class TokenList(Described):
    """Tokens, oldest first."""

    tokens: list[TokenDocument]
    """Tokens of the caller, or the requested ones."""


class LoginLink(Described):
    """A login link, valid once."""

    url: str
    """URL to open in a browser."""
    seconds: int
    """Lifetime of the link in seconds."""


def token_document(token: StoredToken) -> TokenDocument:
    """Return a token's document, without its secret."""
    return TokenDocument(
        id=token.token_id,
        owner=token.owner,
        label=token.label,
        scope=token.scope,
        created=instant(token.created),
        expires=instant(token.expires) if token.expires else None,
        used=instant(token.used) if token.used else None,
    )


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


async def _welcome(
    gate: Authenticator, request: Request, session: Session, target: str, until: float = 0
) -> Response:
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


def me_routes() -> APIRouter:
    """Return the route about the caller."""
    routes = APIRouter(tags=["about"])

    @routes.get("/me", operation_id="show_me")
    async def show_me(caller: Reader) -> MeDocument:
        """Return name, scope and authentication of the caller."""
        return MeDocument(name=caller.name, scope=caller.scope, how=caller.how)

    return routes


def token_routes(service: ApiService) -> APIRouter:
    """Return the routes about tokens. A token cannot create tokens: a thief would keep access."""
    routes = APIRouter(route_class=QueryRoute, prefix="/tokens", tags=["tokens"])
    gate = service.gate

    @routes.post("", status_code=201, operation_id="create_token")
    def create_token(caller: Reader, wish: TokenWish, request: Request, response: Response) -> NewToken:
        """Create a token; only this response has its text.

        An administrator other than root can create only tokens of scope `read` for other users: other scopes would
        allow scripts to run as those users.
        """
        _check_maker(caller)
        owner = wish.owner or caller.name
        if not caller.may_touch(owner):
            raise NotPermitted(f"{caller.name} may not create a token for {owner}")
        if not (owner == caller.name or caller.is_root or wish.scope is Scope.READ):
            asked = f"{caller.name} may not create a token of scope {wish.scope} for {owner}"
            raise NotPermitted(f"{asked}: it could run scripts as {owner}; use the scope read")
        if not owner.isprintable() or owner != owner.strip():
            raise BadDocument("owner: not a user name")
        gate.meet(owner)
        scope = wish.scope if owner != caller.name else lesser(wish.scope, caller.scope)
        text, token = gate.tokens.create(owner, wish.label, scope, wish.lifetime)
        note(request.scope, f"create token {token.token_id} of scope {scope} for {owner}")
        response.headers["Cache-Control"] = "no-store"
        return NewToken(**token_document(token).model_dump(), token=text)

    @routes.get("", operation_id="list_tokens")
    def list_tokens(caller: Reader, every: Annotated[bool, Query(alias="all")] = False) -> TokenList:
        """List the caller's tokens; ``all``: of all users, for administrators. A `read` token sees only itself."""
        if every and not caller.is_admin:
            raise NotPermitted(
                f"{caller.name} is not an administrator of this daemon and may list only own tokens"
            )
        found = gate.tokens.of(None if every else caller.name)
        return TokenList(tokens=[token_document(token) for token in found if _may_see(caller, token)])

    @routes.delete("/{token_id}", operation_id="revoke_token")
    def revoke_token(caller: Reader, token_id: Word, request: Request) -> TokenDocument:
        """Revoke a token and the sessions that it opened. A token of scope `read` can revoke only itself."""
        seen = gate.tokens.of(None if caller.is_admin else caller.name)
        found = next((token for token in seen if token.token_id == token_id and _may_see(caller, token)), None)
        if found is None:
            raise HTTPException(404, f"there is no token {token_id[:40]}; `mirage tokens list` lists yours")
        gate.tokens.revoke(token_id)
        note(request.scope, f"revoke token {token_id} of {found.owner}")
        return token_document(found)

    @routes.post("/link", operation_id="create_login_link")
    def create_login_link(caller: Reader, response: Response) -> LoginLink:
        """Create a login link for the caller, valid once and for 10 minutes."""
        _check_maker(caller)
        response.headers["Cache-Control"] = "no-store"
        return LoginLink(url=login_link(gate, service.url(), caller), seconds=TICKET_LASTS)

    return routes


def login_link(gate: Authenticator, url: str, caller: Caller) -> str:
    """Return a login link for ``caller``. Raises ``ConfigError`` without a network address."""
    if not url:
        raise ConfigError("api.listen", "this daemon has no network address; set one, such as 127.0.0.1:8421")
    return f"{url}/enter?ticket={gate.tickets.issue(Session(caller.name, caller.scope, by_link=True))}"


def _may_see(caller: Caller, token: StoredToken) -> bool:
    """A read-only token, or a session that it opened, must not affect other tokens of its owner."""
    return not caller.token_id or caller.scope is not Scope.READ or caller.token_id == token.token_id


def _check_maker(caller: Caller) -> None:
    if not caller.is_known:
        raise NotPermitted(f"{caller.name} has no user name and cannot have tokens")
    if not caller.makes_tokens:
        raise NotPermitted(
            "a token of Mirage or Slurm, or a session that it opened, cannot create tokens; use the daemon's "
            "Unix socket, or a browser session opened by a login link"
        )

"""``/api/v1/tokens``: create, list and revoke tokens; create login links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.exceptions import HTTPException

from mirage.api.access.auditing import note
from mirage.api.access.caller import Caller
from mirage.api.access.dependencies import Reader
from mirage.api.access.scope import Scope, lesser
from mirage.api.access.sessions import TICKET_LASTS, Session
from mirage.api.conventions.parameters import Word
from mirage.api.conventions.problems import BadDocument
from mirage.api.conventions.threads import QueryRoute
from mirage.api.documents.tokens import LoginLink, NewToken, TokenDocument, TokenList, TokenWish, token_document
from mirage.domain.errors import ConfigError, NotPermitted

if TYPE_CHECKING:
    from mirage.api.access.gate import Gate
    from mirage.api.port import ApiService
    from mirage.store.tokens import StoredToken


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


def login_link(gate: Gate, url: str, caller: Caller) -> str:
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

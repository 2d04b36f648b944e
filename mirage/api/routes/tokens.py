"""``/api/v1/tokens``: make, list and revoke tokens; links that log a browser in."""

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
    """The addresses about tokens. A token makes no other: a thief would keep access."""
    routes = APIRouter(route_class=QueryRoute, prefix="/tokens", tags=["tokens"])
    gate = service.gate

    @routes.post("", status_code=201, operation_id="create_token")
    def create_token(caller: Reader, wish: TokenWish, request: Request, response: Response) -> NewToken:
        """A new token; this answer alone holds its text.

        An administrator who is not root makes tokens of scope `read` alone for others: with any other one they
        would run scripts in their names.
        """
        _check_maker(caller)
        owner = wish.owner or caller.name
        if not caller.may_touch(owner):
            raise NotPermitted(f"{caller.name} cannot make a token for {owner}")
        if not (owner == caller.name or caller.is_root or wish.scope is Scope.READ):
            asked = f"{caller.name} cannot make a token of scope {wish.scope} for {owner}"
            raise NotPermitted(f"{asked}: with it scripts would run in the name of {owner}; read is possible")
        if not owner.isprintable() or owner != owner.strip():
            raise BadDocument("owner: not a user's name")
        gate.meet(owner)
        scope = wish.scope if owner != caller.name else lesser(wish.scope, caller.scope)
        text, token = gate.tokens.create(owner, wish.label, scope, wish.lifetime)
        note(request.scope, f"create token {token.token_id} of scope {scope} for {owner}")
        response.headers["Cache-Control"] = "no-store"
        return NewToken(**token_document(token).model_dump(), token=text)

    @routes.get("", operation_id="list_tokens")
    def list_tokens(caller: Reader, every: Annotated[bool, Query(alias="all")] = False) -> TokenList:
        """One's own tokens; ``all``: all users's, for administrators. A token of scope `read` sees only itself."""
        if every and not caller.is_admin:
            raise NotPermitted(f"{caller.name} is no administrator of this daemon and sees only own tokens")
        found = gate.tokens.of(None if every else caller.name)
        return TokenList(tokens=[token_document(token) for token in found if _may_see(caller, token)])

    @routes.delete("/{token_id}", operation_id="revoke_token")
    def revoke_token(caller: Reader, token_id: Word, request: Request) -> TokenDocument:
        """It counts no more, nor do the sessions that it opened. A token of scope `read` revokes only itself."""
        seen = gate.tokens.of(None if caller.is_admin else caller.name)
        found = next((token for token in seen if token.token_id == token_id and _may_see(caller, token)), None)
        if found is None:
            raise HTTPException(404, f"there is no token {token_id[:40]}; `mirage tokens list` lists yours")
        gate.tokens.revoke(token_id)
        note(request.scope, f"revoke token {token_id} of {found.owner}")
        return token_document(found)

    @routes.post("/link", operation_id="create_login_link")
    def create_login_link(caller: Reader, response: Response) -> LoginLink:
        """A link that logs a browser in as the caller, once, within ten minutes."""
        _check_maker(caller)
        response.headers["Cache-Control"] = "no-store"
        return LoginLink(url=login_link(gate, service.url(), caller), seconds=TICKET_LASTS)

    return routes


def login_link(gate: Gate, url: str, caller: Caller) -> str:
    """A link that logs a browser in as ``caller``. Raises ``ConfigError`` where no browser reaches the daemon."""
    if not url:
        raise ConfigError("api.listen", "this daemon has no network address; give it one, such as 127.0.0.1:8421")
    return f"{url}/enter?ticket={gate.tickets.issue(Session(caller.name, caller.scope, by_link=True))}"


def _may_see(caller: Caller, token: StoredToken) -> bool:
    """A token that only reads, and a session that it opened, must not end what its owner's other tokens do."""
    return not caller.token_id or caller.scope is not Scope.READ or caller.token_id == token.token_id


def _check_maker(caller: Caller) -> None:
    if not caller.is_known:
        raise NotPermitted(f"{caller.name} is no user with a name, and has no tokens")
    if not caller.makes_tokens:
        raise NotPermitted(
            "a token makes no other, of Slurm or of Mirage, nor does a session that it opened: ask on the "
            "daemon's socket, or in a browser that a login link opened"
        )

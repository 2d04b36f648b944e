"""Tokens, as people see them: never the token itself but once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mirage.api.access.scope import Scope
from mirage.api.conventions.described import Described, SentDocument
from mirage.api.conventions.parameters import SHOWN
from mirage.api.documents.instants import instant

if TYPE_CHECKING:
    from mirage.store.tokens import StoredToken

_YEAR = 366 * 86_400


class TokenWish(SentDocument):
    """What a new token is to be."""

    label: Annotated[str, Field(max_length=80), SHOWN] = ""
    """What it is for."""
    scope: Scope = Scope.READ
    """What it is to allow, at most."""
    lifetime: Annotated[int, Field(ge=0, le=10 * _YEAR)] = 90 * 86_400
    """Seconds; 0: indefinitely."""
    owner: Annotated[str, Field(max_length=128), SHOWN] = ""
    """Administrators: in whose name; else one's own."""


class TokenDocument(Described):
    """A token."""

    id: str
    """Names it, without being it."""
    owner: str
    """In whose name it speaks."""
    label: str
    """What it is for."""
    scope: str
    """read, operate or admin; never more than the owner may."""
    created: str | None
    """When."""
    expires: str | None
    """``null``: never."""
    used: str | None
    """When last, to within five minutes."""


class NewToken(TokenDocument):
    """A token, this once with what is to be kept secret."""

    token: str
    """The token itself: it is never told again."""


class TokenList(Described):
    """Tokens, oldest first."""

    tokens: list[TokenDocument]
    """One's own, or those that were asked for."""


class LoginLink(Described):
    """A link that logs a browser in, once."""

    url: str
    """To be opened in the browser."""
    seconds: int
    """So long it can be used."""


def token_document(token: StoredToken) -> TokenDocument:
    """What is told of a token."""
    return TokenDocument(
        id=token.token_id,
        owner=token.owner,
        label=token.label,
        scope=token.scope,
        created=instant(token.created),
        expires=instant(token.expires) if token.expires else None,
        used=instant(token.used) if token.used else None,
    )

"""API tokens; the secret text is shown once, at creation."""

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

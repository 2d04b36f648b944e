"""Errors as RFC 9457 problem details (``application/problem+json``)."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from mirage.api.access.auditing import note
from mirage.api.access.authentication import COUNTED, NotAuthenticated
from mirage.api.access.dependencies import caller_of
from mirage.api.access.rates import TooOften
from mirage.api.conventions.documents import JsonAnswer
from mirage.domain.errors import (
    BadSpelling,
    ChainOver,
    ClusterUnavailable,
    ConfigError,
    MirageError,
    NotPermitted,
    PluginNotFound,
    QuotaExceeded,
    StoreUnavailable,
    UnknownChain,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI, Request

    from mirage.domain.chain import ChainId


class BadDocument(MirageError):
    """The request is invalid; the text names the field."""


class NotYours(UnknownChain):
    """An ID with another user's mark: not found for the caller; the audit log has whether it exists.

    Its existence must change only the text of the audit entry, or the response time would show it.
    """

    def __init__(self, words: str, chain: ChainId, found: str) -> None:
        super().__init__(words)
        self.chain, self.found = chain, found


class Busy(MirageError):
    """Timeout of the decision loop; the text says whether the command may still be executed."""


_STATUS: tuple[tuple[type[MirageError], HTTPStatus], ...] = (
    (NotAuthenticated, HTTPStatus.UNAUTHORIZED),
    (TooOften, HTTPStatus.TOO_MANY_REQUESTS),
    (QuotaExceeded, HTTPStatus.TOO_MANY_REQUESTS),
    (NotPermitted, HTTPStatus.FORBIDDEN),
    (UnknownChain, HTTPStatus.NOT_FOUND),
    (BadDocument, HTTPStatus.UNPROCESSABLE_ENTITY),
    (BadSpelling, HTTPStatus.UNPROCESSABLE_ENTITY),
    (PluginNotFound, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ConfigError, HTTPStatus.CONFLICT),
    (ChainOver, HTTPStatus.CONFLICT),
    (StoreUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (ClusterUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (Busy, HTTPStatus.GATEWAY_TIMEOUT),
)


def install_problems(app: FastAPI) -> None:
    """Respond to every error with a problem document."""
    app.add_exception_handler(MirageError, _mirage)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)


def problem(status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> JsonAnswer:
    """Return a problem document; its ``title`` is the standard phrase of the status."""
    document = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    return JsonAnswer(document, status.value, headers, media_type="application/problem+json")


def answer_to(error: MirageError | HTTPException) -> JsonAnswer:
    """Return the problem document of an error."""
    if isinstance(error, HTTPException):
        return problem(HTTPStatus(error.status_code), str(error.detail), error.headers)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.CONFLICT)
    return problem(status, str(error), _headers(error))


async def refused(request: Request, error: MirageError | HTTPException) -> JsonAnswer:
    """Return the problem document, or 429: requests rejected early count against the rate too."""
    if not request.scope.get(COUNTED):
        try:
            await caller_of(request)
        except TooOften as often:
            return answer_to(often)
        except MirageError:
            pass
    return answer_to(error)


async def _mirage(request: Request, error: Exception) -> JsonAnswer:
    assert isinstance(error, MirageError)
    if isinstance(error, NotYours):
        note(request.scope, chain=error.chain, refused=error.found)
    return await refused(request, error)


def _headers(error: Exception) -> dict[str, str]:
    if isinstance(error, NotAuthenticated):
        return {"WWW-Authenticate": 'Bearer realm="mirage"'}
    return {"Retry-After": str(error.wait)} if isinstance(error, TooOften) else {}


async def _http(request: Request, error: Exception) -> JsonAnswer:
    assert isinstance(error, HTTPException)
    return await refused(request, error)


async def _invalid(request: Request, error: Exception) -> JsonAnswer:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return await refused(request, BadDocument(f"{place}: {first['msg']}"))

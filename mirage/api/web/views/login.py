"""``/login``: the form for those whom nobody knows yet."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from mirage.api.web.rendering import render


async def show_login(
    request: Request,
    failed: bool = False,
    used: bool = False,
    target: Annotated[str, Query(alias="next", max_length=2_000)] = "/",
) -> Response:
    """The page; ``failed``: after a token that proved nothing; ``used``: after a link that counts no more."""
    return await render(request, "login.html.j2", None, failed=failed, used=used, target=target)

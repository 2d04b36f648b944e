"""``/login``: the login form."""

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
    """Show the login form; ``failed``: after an invalid token; ``used``: after an invalid login link."""
    return await render(request, "login.html.j2", None, failed=failed, used=used, target=target)

"""Renders templates; all external text is escaped."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from mirage import __version__
from mirage.api.conventions.threads import run_in_thread
from mirage.api.web.timeaxis import calendar, relative, seconds_of, signed, span
from mirage.domain.bounds import STEERING, format_instant

if TYPE_CHECKING:
    from fastapi import Request

    from mirage.api.routes.account import MeDocument

_INSTANT = re.compile(r"(\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")
_CODE = re.compile("`([^`]+)`")
_STEERING = re.compile(f"(?![\t\n\r]){STEERING.pattern}")
"""Line breaks and tabs do not change the text direction."""
UNKNOWN = "\N{EN DASH}"
"""Placeholder of an unknown value."""
STATIC = Path(__file__).parent / "static"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mirage.api.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=plain,
    )
    spans = {"span": span, "signed": signed, "seconds": seconds_of}
    environment.filters |= {**spans, "iso": _iso, "percent": _percent}
    environment.globals |= {
        "when": when,
        "since": since,
        "told": told,
        "spoken": spoken,
        "asset": asset,
        "version": __version__,
    }
    return environment


async def render(
    request: Request, template: str, me: MeDocument | None, status: int = 200, **values: Any
) -> HTMLResponse:
    """Render ``template`` for ``me``; ``None``: without a known caller.

    Runs in a thread of the caller's share: a page may have thousands of tasks.
    """
    root = request.scope.get("root_path", "")
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    make = _environment().get_template(template).render
    text = await run_in_thread(me.name if me else "", make, root=root, here=here, me=me, **values)
    return HTMLResponse(text, status, headers={"Cache-Control": "no-store"})


def plain(value: object) -> object:
    """Replace control characters that change the text direction; users may have written the text."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _STEERING.sub("?", value)
    return value


def when(text: str | None) -> Markup | str:
    """Format an API time as ``<time>``; a script shows it in the reader's zone."""
    seconds = seconds_of(text)
    if seconds is None:
        return UNKNOWN
    return Markup('<time datetime="{}">{}</time>').format(text, calendar(seconds))


def since(text: str | None, now: str | None) -> Markup | str:
    """Format a time relative to ``now``: ``in 2 h``, with the time as title."""
    at, seen = seconds_of(text), seconds_of(now)
    if at is None or seen is None:
        return UNKNOWN
    return Markup('<time datetime="{}" title="{}" class="relative">{}</time>').format(
        text, calendar(at), escape(relative(at, seen))
    )


def told(text: str) -> Markup:
    """Format a journal text, with its times as ``<time>``."""
    parts = _INSTANT.split(_STEERING.sub("?", text))
    return Markup("").join(when(part) if number % 2 else part for number, part in enumerate(parts))


def spoken(text: str) -> Markup:
    """Format an API text, with backticked parts as ``<code>``."""
    parts = _CODE.split(_STEERING.sub("?", text))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if number % 2 else part for number, part in enumerate(parts))


@cache
def asset(name: str) -> str:
    """Return the URL of a static file. It changes with the content, so browsers may cache it indefinitely."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]
    return f"/static/{name}?v={digest}"


def _iso(seconds: float) -> str:
    return format_instant(int(seconds))


def _percent(part: float | None) -> str:
    return UNKNOWN if part is None else f"{part:.0%}"

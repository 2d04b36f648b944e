"""The replay's report as one HTML file that needs nothing else: no scripts, no requests, both themes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirage.domain.errors import MissingExtra

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.replay.metrics import ReplayMetrics
    from mirage.replay.outcome import ReplayResult


def write_html(path: Path, result: ReplayResult, metrics: ReplayMetrics) -> None:
    """Write the report to ``path``. Raises ``MissingExtra`` without jinja2 and matplotlib."""
    path.write_text(render_html(result, metrics), encoding="utf-8")


def render_html(result: ReplayResult, metrics: ReplayMetrics) -> str:
    """The report as text; the same replay gives the same bytes."""
    try:  # heavy and optional: only who asks for a page pays for drawing it
        from jinja2 import Environment, PackageLoader, StrictUndefined

        from mirage.replay.page import compose_page
        from mirage.replay.svg import INKS
    except ImportError as error:
        raise MissingExtra("The HTML report", "report") from error
    environment = Environment(
        loader=PackageLoader("mirage.replay"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_bind,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = compose_page(result, metrics)
    return environment.get_template("report.html.j2").render(page=page, inks=INKS)


def _bind(value: object) -> object:
    """Keeps a number and its unit on one line; marked-up text (pictures) passes as it is."""
    return re.sub(r"(?<=\d) (?=(?:%|h|min|d)(?!\w))", "\N{NO-BREAK SPACE}", value) if type(value) is str else value

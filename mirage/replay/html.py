"""The replay's report as one HTML file that needs nothing else: no scripts, no requests, both themes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirage.domain.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jinja2 import Template

    from mirage.replay.metrics import ReplayMetrics
    from mirage.replay.results import ReplayResult


def write_html(path: Path, result: ReplayResult, metrics: ReplayMetrics) -> None:
    """Write the report to ``path``. Raises ``MissingExtra`` without jinja2 and matplotlib."""
    path.write_text(render_html(result, metrics), encoding="utf-8")


def render_html(result: ReplayResult, metrics: ReplayMetrics) -> str:
    """The report as text; the same replay gives the same bytes."""
    template = open_report("report.html.j2", _bind)
    from mirage.replay.page import compose_page

    return template.render(page=compose_page(result, metrics))


def open_report(name: str, finalize: Callable[[object], object] | None = None) -> Template:
    """A report's template, which draws by ``inks``. Raises ``MissingExtra`` without jinja2 and matplotlib."""
    try:  # heavy and optional: only who asks for a page pays for drawing it
        from jinja2 import Environment, PackageLoader, StrictUndefined

        from mirage.replay.svg import INKS
    except ImportError as error:
        raise MissingExtra("The HTML report", "report") from error
    environment = Environment(
        loader=PackageLoader("mirage.replay"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name, globals={"inks": INKS})


def _bind(value: object) -> object:
    """Keeps a number and its unit on one line; marked-up text (pictures) passes as it is."""
    return re.sub(r"(?<=\d) (?=(?:%|h|min|d)(?!\w))", "\N{NO-BREAK SPACE}", value) if type(value) is str else value
